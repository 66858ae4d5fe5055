"""The reader of Go sources takes order, JSON names, omit rules and markers from gofmt'ed text."""

from pathlib import Path

from common.api.go_types import GoField, GoType
from crd_generator import go_source

SOURCE = """package v1

// Colour is an alias.
type Colour string

// Thing has fields.
// +structType=atomic
type Thing struct {
\tBase `json:",inline"`
\t// Name of it.
\t// +required
\tName string `json:"name" protobuf:"bytes,1"`
\t// +optional
\t// +listType=map
\t// +listMapKey=port
\t// +listMapKey=protocol
\tPorts []*Port `json:"ports,omitempty"`
\t// +default="red"
\tColour *Colour `json:"colour,omitempty"`
\tTime metav1.Time `json:"time,omitzero"`
}
"""


def test_a_struct_is_read_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "types.go"
    path.write_text(SOURCE)
    declared = dict(go_source.declarations("core/v1", path))
    assert declared["core/v1.Colour"] == GoType(alias="string")
    assert declared["core/v1.Thing"] == GoType(
        atomic=True,
        fields=[
            GoField(name="", type="core/v1.Base", keep=True),
            GoField(name="name", type="string", keep=True, required=True),
            GoField(
                name="ports",
                type="[]*core/v1.Port",
                optional=True,
                list_type="map",
                list_keys=["port", "protocol"],
            ),
            GoField(name="colour", type="*core/v1.Colour", default='"red"'),
            GoField(name="time", type="time"),
        ],
    )
