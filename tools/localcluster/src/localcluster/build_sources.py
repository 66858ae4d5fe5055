"""The list of programs to build, with their Go modules and the usual duration of a build. No I/O.

`k8s.io/kubernetes` replaces its staging modules by folders of its own repository, so a build
outside this repository must require their released versions instead. The programs are small main
packages that call the commands of the upstream modules.
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from localcluster import settings


class GoProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is built from source.

    `group` names the Go module that is written for the build, `main` is the source of the program's
    main package, and `seconds` is the duration of the build on 2 cores with an empty cache.
    """

    name: str
    group: str
    main: str
    seconds: int


class Manifests(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of YAML files from released Go modules.

    Each source is (module, version, folder, file pattern).
    """

    name: str
    sources: tuple[tuple[str, str, str, str], ...]


class TrimmedModule(msgspec.Struct, frozen=True, kw_only=True):
    """A Go module in which one package is replaced, and the Go source of the replacement."""

    module: str
    version: str
    package: str
    text: str

    @property
    def folder(self) -> str:
        """Name of the folder for the changed copy of the module, beside the main package."""
        return self.module.split("/")[2]


_KUBERNETES_MODULE = "k8s.io/kubernetes"
_DIRECTIVE = re.compile(
    r"^(?:replace \S+(?: \S+)? => [^.\s]\S* \S+|exclude \S+ \S+)$", re.MULTILINE
)
_NATS_MODULE = "github.com/nats-io/nats-server/v2"
_STAGING = re.compile(r"^\s*(k8s\.io/\S+) v0\.0\.0$", re.MULTILINE)

_COMPONENT = """package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/{package}/app"
)

func main() {{
	os.Exit(cli.Run(app.{constructor}()))
}}
"""

_KUBELET = """package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
"""

_KUBECTL = """package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
"""

_ETCD = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
"""

# CoreDNS with only the plugins that an offline cluster needs; the full set compiles four cloud SDKs
# for minutes.
_COREDNS = """package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	coremain.Run()
}
"""

# The module of cert-manager's command cannot be required from outside. This program runs the
# controllers that need no other service.
_CERT_MANAGER = """package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"k8s.io/klog/v2"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "file with the address of the API server and credentials")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(klog.NewContext(ctx, klog.Background()), *kubeconfig); err != nil {
		klog.ErrorS(err, "cert-manager cannot start")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig: kubeconfig,
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for name, construct := range controller.Known() {
		each, err := construct(factory)
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := each.Run(1, ctx); err != nil {
				klog.ErrorS(err, "a controller ended", "controller", name)
			}
		})
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	running.Wait()
	return nil
}
"""


_NO_PASSWORDS = """package auth

import "net/http"

type SecretProvider func(user, realm string) string

type BasicAuth struct {
	Realm   string
	Secrets SecretProvider
}

func (*BasicAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusUnauthorized)
}

type DigestAuth struct{}

func NewDigestAuthenticator(string, SecretProvider) *DigestAuth { return &DigestAuth{} }

func (*DigestAuth) CheckAuth(*http.Request) (string, *string) { return "", nil }

func (*DigestAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusUnauthorized)
}

func (*DigestAuth) RequireAuthStale(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusUnauthorized)
}

func DigestAuthParams(string) map[string]string { return nil }

func CheckSecret(string, string) bool { return false }
"""

_NO_DNS_PROVIDERS = """package dns

import (
	"fmt"

	"github.com/go-acme/lego/v5/challenge"
)

func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
	return nil, fmt.Errorf("this build has no DNS provider %s", name)
}
"""


_KUBERNETES_GROUP = "kubernetes"
_NATS_GROUP = "nats-server"


def _build_kubernetes_program(name: str, main: str, seconds: int, version: str = "") -> GoProgram:
    """Return a program of Kubernetes; if `version` is given, its name and group contain it."""
    suffix = f"-{version}" if version else ""
    return GoProgram(
        name=f"{name}{suffix}", group=f"{_KUBERNETES_GROUP}{suffix}", main=main, seconds=seconds
    )


def _build_component_program(
    name: str, constructor: str, seconds: int, version: str = ""
) -> GoProgram:
    main = _COMPONENT.format(package=name, constructor=constructor)
    return _build_kubernetes_program(name, main, seconds, version)


def _build_control_plane_programs(version: str = "") -> tuple[GoProgram, ...]:
    return (
        _build_component_program("kube-apiserver", "NewAPIServerCommand", 165, version),
        _build_component_program(
            "kube-controller-manager", "NewControllerManagerCommand", 75, version
        ),
        _build_component_program("kube-scheduler", "NewSchedulerCommand", 15, version),
    )


def _build_nats_server(version: str) -> GoProgram:
    name = f"{_NATS_GROUP}-{version}"
    return GoProgram(name=name, group=name, main="", seconds=30)


PROGRAMS: dict[str, GoProgram] = {
    program.name: program
    for program in (
        GoProgram(name="etcd", group="etcd", main=_ETCD, seconds=50),
        *_build_control_plane_programs(),
        _build_kubernetes_program("kubelet", _KUBELET, 40),
        _build_component_program("kube-proxy", "NewProxyCommand", 10),
        _build_kubernetes_program("kubectl", _KUBECTL, 30),
        GoProgram(name="coredns", group="coredns", main=_COREDNS, seconds=75),
        GoProgram(name="envoy-gateway", group="envoy-gateway", main="", seconds=240),
        GoProgram(name="kwok", group="kwok", main="", seconds=75),
        GoProgram(name=f"helm-{settings.HELM}", group="helm", main="", seconds=120),
        GoProgram(name=f"nats-{settings.NATS_CLI}", group="nats", main="", seconds=60),
        GoProgram(
            name=f"cert-manager-{settings.CERT_MANAGER}",
            group="cert-manager",
            main=_CERT_MANAGER,
            seconds=100,
        ),
        GoProgram(name=f"kueue-{settings.KUEUE}", group="kueue", main="", seconds=240),
        GoProgram(name=f"versitygw-{settings.VERSITYGW}", group="versitygw", main="", seconds=120),
        GoProgram(
            name=f"docker-compose-{settings.DOCKER_COMPOSE}", group="compose", main="", seconds=180
        ),
        GoProgram(name=f"contour-{settings.CONTOUR}", group="contour", main="", seconds=240),
        GoProgram(name=f"traefik-{settings.TRAEFIK}", group="traefik", main="", seconds=600),
        GoProgram(name=f"pilot-discovery-{settings.ISTIO}", group="istio", main="", seconds=320),
        *(
            program
            for version in settings.TESTED_KUBERNETES
            for program in _build_control_plane_programs(version)
        ),
        *map(_build_nats_server, settings.TESTED_NATS),
    )
}

MODULES: dict[str, tuple[str, str]] = {
    _KUBERNETES_GROUP: (_KUBERNETES_MODULE, settings.KUBERNETES),
    "etcd": ("go.etcd.io/etcd/server/v3", settings.ETCD),
    "coredns": ("github.com/coredns/coredns", settings.COREDNS),
    "envoy-gateway": ("github.com/envoyproxy/gateway", settings.ENVOY_GATEWAY),
    "kwok": ("sigs.k8s.io/kwok", settings.KWOK),
    "helm": ("helm.sh/helm/v4", settings.HELM),
    "nats": ("github.com/nats-io/natscli", settings.NATS_CLI),
    "cert-manager": ("github.com/cert-manager/cert-manager", settings.CERT_MANAGER),
    "kueue": ("sigs.k8s.io/kueue", settings.KUEUE),
    "versitygw": ("github.com/versity/versitygw", settings.VERSITYGW),
    "compose": ("github.com/docker/compose/v2", settings.DOCKER_COMPOSE),
    "contour": ("github.com/projectcontour/contour", settings.CONTOUR),
    "traefik": ("github.com/traefik/traefik/v3", settings.TRAEFIK),
    "istio": ("istio.io/istio", settings.ISTIO),
    **{
        f"{_KUBERNETES_GROUP}-{version}": (_KUBERNETES_MODULE, version)
        for version in settings.TESTED_KUBERNETES
    },
    **{f"{_NATS_GROUP}-{version}": (_NATS_MODULE, version) for version in settings.TESTED_NATS},
}
"""The upstream Go module and its version, by the name of the build group."""

INSTALLED: dict[str, str] = {
    "envoy-gateway": "github.com/envoyproxy/gateway/cmd/envoy-gateway",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "helm": "helm.sh/helm/v4/cmd/helm",
    "nats": "github.com/nats-io/natscli/nats",
    "kueue": "sigs.k8s.io/kueue/cmd/kueue",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw",
    "compose": "github.com/docker/compose/v2/cmd",
    "contour": "github.com/projectcontour/contour/cmd/contour",
    "traefik": "github.com/traefik/traefik/v3/cmd/traefik",
    "istio": "istio.io/istio/pilot/cmd/pilot-discovery",
    **{f"{_NATS_GROUP}-{version}": _NATS_MODULE for version in settings.TESTED_NATS},
}
"""Groups that build a main package of the upstream module, with the path of this package.

Other groups build a main package that this project writes.
"""

LOCAL_MODULES: dict[str, dict[str, str]] = {
    "traefik": {
        "github.com/traefik/traefik/dynamic/ext": (
            "package ext\n\ntype HTTP struct{}\n\ntype Router struct{}\n"
        ),
        "github.com/abbot/go-http-auth": _NO_PASSWORDS,
    }
}
"""Go source of modules that the build writes beside the main package, by group and module name.

Traefik requires two modules that are not published. `ext` declares fields that other builds add to
the routing file. The fork of `go-http-auth` is used only by the password middlewares; in this build
they refuse every password.
"""

TRIMMED_MODULES: dict[str, tuple[TrimmedModule, ...]] = {
    "traefik": (
        TrimmedModule(
            module="github.com/go-acme/lego/v5",
            version="5.4.1",
            package="providers/dns",
            text=_NO_DNS_PROVIDERS,
        ),
    )
}
"""Modules that are built without one of their packages, by group.

lego's DNS providers need the modules of dozens of clouds, some of which are not published. Traefik
needs the providers only to get certificates.
"""

_REPLACING_GROUPS = frozenset({"traefik"})
"""Groups whose upstream module replaces or excludes published modules.

Go ignores these directives in a required module, so the build repeats them in its own go.mod.
"""

_STAGES = ("sigs.k8s.io/kwok", settings.KWOK)
_GATEWAY_API_MODULE = "sigs.k8s.io/gateway-api"
_GATEWAY = ("github.com/envoyproxy/gateway", settings.ENVOY_GATEWAY)

MANIFESTS: dict[str, Manifests] = {
    manifests.name: manifests
    for manifests in (
        Manifests(
            name="kwok-stages",
            sources=(
                (*_STAGES, "kustomize/stage/pod/fast", "pod-*.yaml"),
                (*_STAGES, "kustomize/stage/node/fast", "node-*.yaml"),
                (*_STAGES, "kustomize/stage/node/heartbeat-with-lease", "node-*.yaml"),
            ),
        ),
        Manifests(
            name="gateway-crds",
            sources=(
                (
                    _GATEWAY_API_MODULE,
                    settings.GATEWAY_API,
                    "config/crd/standard",
                    "gateway.*.yaml",
                ),
                (*_GATEWAY, "charts/gateway-crds-helm/templates/generated", "*.yaml"),
            ),
        ),
        Manifests(
            name=f"cert-manager-crds-{settings.CERT_MANAGER}",
            sources=((*MODULES["cert-manager"], "deploy/crds", "*.yaml"),),
        ),
        *(
            Manifests(
                name=f"gateway-crds-{version}",
                sources=((_GATEWAY_API_MODULE, version, "config/crd/standard", "gateway.*.yaml"),),
            )
            for version in settings.TESTED_GATEWAY_API
        ),
        Manifests(
            name=f"contour-crds-{settings.CONTOUR}",
            sources=(
                (*MODULES["contour"], "examples/contour", "01-crds.yaml"),
                (*MODULES["contour"], "examples/gateway", "00-crds.yaml"),
            ),
        ),
        Manifests(
            name=f"gateway-api-{settings.GATEWAY_API_OF_TESTS}",
            sources=(
                (
                    "sigs.k8s.io/gateway-api",
                    settings.GATEWAY_API_OF_TESTS,
                    "config/crd/experimental",
                    "gateway.*.yaml",
                ),
            ),
        ),
        Manifests(
            name=f"kueue-manifests-{settings.KUEUE}",
            sources=(
                (*MODULES["kueue"], "config/components/crd/bases", "kueue.*.yaml"),
                (*MODULES["kueue"], "config/components/webhook", "manifests.yaml"),
            ),
        ),
    )
}


def by_group(names: Sequence[str]) -> list[list[GoProgram]]:
    """Group programs by their Go module. Modules and programs keep the order of `names`."""
    groups: dict[str, list[GoProgram]] = {}
    for name in names:
        groups.setdefault(PROGRAMS[name].group, []).append(PROGRAMS[name])
    return list(groups.values())


def format_module_file(group: str, upstream: str) -> str:
    """Return the text of go.mod for a build group.

    `upstream` is the text of go.mod of the module that the group requires.
    """
    module, version = MODULES[group]
    lines = [f"module raybus.local/{group}", "", "go 1.24", "", f"require {module} v{version}", ""]
    if module == _KUBERNETES_MODULE:
        staged = f"v0.{version.removeprefix('1.')}"
        lines += [f"replace {name} => {name} {staged}" for name in _STAGING.findall(upstream)]
    if group in _REPLACING_GROUPS:
        local = tuple(f"replace {name} =>" for name in LOCAL_MODULES.get(group, {}))
        lines += [line for line in _find_directives(upstream) if not line.startswith(local)]
    lines += [
        f"replace {trimmed.module} => ./{trimmed.folder}"
        for trimmed in TRIMMED_MODULES.get(group, ())
    ]
    lines += [
        f"replace {name} => ./{PurePosixPath(name).name}" for name in LOCAL_MODULES.get(group, {})
    ]
    return "\n".join(lines) + "\n"


def _find_directives(upstream: str) -> list[str]:
    """Return the lines of a go.mod that replace or exclude published modules."""
    blocks = re.sub(
        r"^replace \(\n(.*?)^\)$",
        lambda block: re.sub(r"^\s+(?=\S)", "replace ", block[1], flags=re.MULTILINE),
        upstream,
        flags=re.MULTILINE | re.DOTALL,
    )
    return _DIRECTIVE.findall(blocks)


def build_linker_flags(group: str) -> str:
    """Return Go's linker flags for a group.

    They leave out debug data, and set the version in programs that report it.
    """
    flags = "-s -w"
    module, version = MODULES[group]
    if module == _KUBERNETES_MODULE:
        package = "k8s.io/component-base/version"
        major, minor, _ = version.split(".")
        values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        flags += "".join(f" -X {package}.{name}={value}" for name, value in values.items())
    if group == "compose":
        flags += f" -X github.com/docker/compose/v2/internal.Version=v{settings.DOCKER_COMPOSE}"
    return flags


def total_seconds(names: list[str]) -> int:
    """Return the usual seconds for building these programs with an empty cache."""
    return sum(PROGRAMS[name].seconds for name in names if name in PROGRAMS)
