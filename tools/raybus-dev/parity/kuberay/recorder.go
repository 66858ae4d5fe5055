package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Event is what an operator reported.
type Event struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
	Note   string `json:"note"`
}

// Recorder keeps Events in place of sending them.
type Recorder struct {
	events []Event
}

func (r *Recorder) keep(kind, reason, note string, args ...any) {
	r.events = append(r.events, Event{Type: kind, Reason: reason, Note: fmt.Sprintf(note, args...)})
}

// Modern is the interface of k8s.io/client-go/tools/events.
type Modern struct{ *Recorder }

// Eventf keeps an Event.
func (r Modern) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.keep(kind, reason, note, args...)
}

// Legacy is the interface of k8s.io/client-go/tools/record.
type Legacy struct{ *Recorder }

// Event keeps an Event.
func (r Legacy) Event(_ runtime.Object, kind, reason, note string) { r.keep(kind, reason, "%s", note) }

// Eventf keeps an Event.
func (r Legacy) Eventf(_ runtime.Object, kind, reason, note string, args ...any) {
	r.keep(kind, reason, note, args...)
}

// AnnotatedEventf keeps an Event.
func (r Legacy) AnnotatedEventf(_ runtime.Object, _ map[string]string, kind, reason, note string, args ...any) {
	r.keep(kind, reason, note, args...)
}
