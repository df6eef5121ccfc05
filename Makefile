# Everything a developer or CI runs. `make demo` and `make test` set up what they need, on a fresh Debian 12 as root too.
#
# A step that takes long leaves a stamp in .cache/, made last, so an interrupted step runs again and a finished one does not.
# A machine that has the packages already needs neither root nor apt-get.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Tests start many interpreters, and each would compile what it imports anew.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
BIN    := .venv/bin
STAMPS := .cache/stamps
MYSQL97 := .cache/mysql97
MARIADB118 := .cache/mariadb118
KAFKA := .cache/kafka-4.3.1
FLINK := .cache/flink-2.0.0
REGISTRY := .cache/apicurio-2.6.13
DEBEZIUM := .cache/debezium-3.3.1
DEBEZIUM_MARIADB := .cache/debezium-mariadb-3.4.0
AVRO_CONVERTER := .cache/avro-converter-2.6.13
ICEBERG := .cache/iceberg-1.12.0
PROMETHEUS := .cache/prometheus
GH_OST := .cache/gh-ost/gh-ost
CRANE := .cache/crane/crane
KEYS_PLUGIN := .cache/mariadb-plugins/file_key_management.so
PYTEST := $(BIN)/pytest
# Of what Maven brings only the last: each waits for the one before.
SERVERS := $(KEYS_PLUGIN) $(MARIADB118)/usr/sbin/mariadbd $(MYSQL97)/usr/sbin/mysqld $(ICEBERG)/classes/IcebergRestServer.class
# What waits for the network goes beside what computes.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs=5
# CI calls one target after the other, so a target also brings what the next one needs.
IN_CI := $(filter-out 0 false,$(CI))

# The tables of the demo: delta or iceberg
SINK ?= delta
# ARGS goes to pytest: make test-unit ARGS='-k gtid -x'
ARGS ?=
# Test processes at once; those with a server each have their own, and often wait for it.
WORKERS ?= 2
SERVER_WORKERS ?= 4
# The version of Kubernetes of the cluster's tests, of those in tests/cluster/node; empty: the usual one.
export KUBERNETES ?=
# What is marked `long` is left to `make test-all`.
LONG ?= not long
STRESS_SECONDS ?= 20

.PHONY: help venv setup servers gh-ost demo docs lint lint-types lint-tests lint-all-else format test test-all test-unit test-servers test-stress test-kube test-cluster images release sign publish bench lock clean kube-programs kube-tests cluster-images

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | while IFS='|' read -r target text; do printf '  make %-14s%s\n' "$$target" "$$text"; done

venv: .venv/editable ## the Python packages alone: enough for the tests without a server

setup: .venv/ready ## install what is needed and leave .venv/bin/cdcsync ready

servers: setup ## provide the servers that the tests start
	@$(SIDE_BY_SIDE) $(SERVERS)

gh-ost: $(GH_OST) ## build gh-ost, which tests of `make test-all` run beside a stream (needs Go)

demo: setup ## copy a small shop from a MariaDB of our own into Delta tables (SINK=iceberg: Iceberg) and verify it while it is written
	@$(BIN)/cdcsync demo --sink $(SINK)

lint: venv ## ruff, formatting, types, import layers, words, the manual, whether every test can be collected
	@$(SIDE_BY_SIDE) --output-sync=target lint-types lint-tests lint-all-else

lint-types:
	@echo "lint: mypy"
	@$(BIN)/mypy

# The checker of types leaves a processor idle. Each worker of pytest would make anew what this leaves in the caches.
lint-tests:
	@echo "lint: every test can be collected"
	@$(PYTEST) --collect-only -qq tests >.cache/collected.txt || { tail -n 60 .cache/collected.txt; exit 1; }

lint-all-else:
	@echo "lint: ruff check"
	@$(BIN)/ruff check .
	@echo "lint: ruff format"
	@$(BIN)/ruff format --check .
	@echo "lint: import layers"
	@$(BIN)/lint-imports --no-logo
	@echo "lint: words"
	@$(BIN)/python tools/words.py
	@echo "lint: the manual, strict, and its generated pages"
	@$(BIN)/python tools/reference.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs: venv ## generate the manual's reference and build the manual into .cache/site
	@$(BIN)/python tools/reference.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "docs: open .cache/site/index.html"

format: venv ## format the code and repair what ruff can repair
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

test: venv ## the tests that CI runs; Java and the servers come beside those that need neither
	@$(SIDE_BY_SIDE) test-unit setup $(SERVERS) $(if $(IN_CI),kube-programs)
	@$(MAKE) --no-print-directory test-servers

test-all: ## the same, those of test-kube, and those that take long: more servers under stress, more interrupts and outages, new examples of laws, cosign, krew
	@$(MAKE) gh-ost
	@CDCSYNC_NEW_EXAMPLES=1 $(MAKE) test test-kube LONG='long or not long'

test-unit: venv ## tests that need no server and no JVM: unit, property, contract
	@echo "test-unit: tests without a server"
	@$(PYTEST) tests/unit tests/property tests/contract -m "not spark and not server and ($(LONG))" -n $(WORKERS) --dist worksteal $(ARGS)

test-servers: setup servers ## tests against real MariaDB and MySQL servers, with Spark, under writers and kills
	@echo "test-servers: tests against real servers; random work for $(STRESS_SECONDS) s a case"
	@CDCSYNC_STRESS_SECONDS=$(STRESS_SECONDS) $(PYTEST) tests/stress tests/contract tests/servers -m "(server or spark or stress) and ($(LONG))" \
	  -n $(SERVER_WORKERS) --dist worksteal $(ARGS)

test-stress: setup servers ## of these the writers and kills only; longer: STRESS_SECONDS=600, all servers: LONG='long or not long'
	@CDCSYNC_STRESS_SECONDS=$(STRESS_SECONDS) $(PYTEST) tests/stress -m "$(LONG)" -n $(WORKERS) --dist worksteal $(ARGS)

test-kube: setup kube-programs ## tests against a Kubernetes API server and Helm: the rules of the CRD, the operator, the chart; KUBERNETES=1.33: that version
	@echo "test-kube: tests against an API server and Helm"
	@tests/support/prometheus.sh $(PROMETHEUS)
	@$(SIDE_BY_SIDE) kube-tests $(if $(IN_CI),cluster-images)

# None of them comes from apt, so they may come beside the servers.
kube-programs: venv
	@tests/cluster/install.sh
	@tests/cluster/helm.sh

kube-tests:
	@$(PYTEST) tests/kube -m "$(LONG)" -n $(WORKERS) --dist loadfile $(ARGS)

# What the cluster's tests need first: CI runs them next, and the tests of an API server wait much.
cluster-images:
	@nice tests/cluster/install.sh packages
	@nice tests/cluster/images.sh build

# A registry, which is built outside of the node, because nothing there reaches the module proxy.
test-cluster: setup servers $(if $(filter-out not,$(firstword $(LONG))),$(CRANE)) ## the operator end to end on a one-node Kubernetes of our own, or on a given one: KUBECONFIG= IMAGE_LOADER= (root; builds the images); KUBERNETES=1.33
	@echo "test-cluster: tests on a cluster"
	@tests/cluster/run.sh $(PYTEST) tests/cluster -m "$(LONG)" $(ARGS)

images: setup ## build the images of operator and drivers and their bills of materials (buildah, on a Debian of debootstrap)
	@tests/cluster/install.sh images
	@tests/cluster/images.sh build
	@tests/cluster/images.sh sbom $(CURDIR)/.cache/sbom
	@tests/cluster/images.sh key

# RELEASE= is the folder, which must not be there yet; IMAGES=yes adds the images (root; builds them).
RELEASE ?= dist

release: venv $(if $(IMAGES),images) ## make the files of a release: wheel, source, tested versions, chart, notes, bills of materials, checksums; IMAGES=yes: images; ADD_IMAGES=FOLDER: those of a release by a machine of the other architecture, too; PLUGIN_URL=https://... (where the files will be): the plugin for krew
	@tests/cluster/helm.sh
	@$(BIN)/python tools/release.py $(RELEASE) --helm .cache/node/helm $(if $(IMAGES),--images tests/cluster/images.sh) $(if $(PLUGIN_URL),--plugin-url $(PLUGIN_URL))

# The key stays the owner's: a file of `cosign generate-key-pair`, or what cosign's manual names (a KMS, a token).
COSIGN ?= cosign

sign: ## sign a release's checksums with cosign 2, without a network: SIGN_KEY=cosign.key RELEASE=FOLDER (COSIGN_PASSWORD, or it asks)
	@test -n "$(SIGN_KEY)" || { echo "sign: no key; needed: SIGN_KEY=, as cosign's --key takes it, for example a file of cosign generate-key-pair" >&2; exit 1; }
	@cd $(RELEASE) && sha256sum --check --quiet --strict SHA256SUMS
	@$(COSIGN) sign-blob --yes --tlog-upload=false --key $(SIGN_KEY) --bundle $(RELEASE)/SHA256SUMS.bundle $(RELEASE)/SHA256SUMS >/dev/null
	@echo "sign: $(RELEASE)/SHA256SUMS.bundle"

# PLAIN_HTTP=yes: a registry without TLS. Helm, skopeo and cosign use the logins that they have.
publish: ## push a release's images and chart to an OCI registry, and sign them where SIGN_KEY is given: RELEASE=FOLDER PUSH_TO=HOST/PATH (skopeo); prints the chart's values
	@test -n "$(PUSH_TO)" || { echo "publish: no registry; needed: PUSH_TO=HOST/PATH, an OCI registry and a path there" >&2; exit 1; }
	@tests/cluster/helm.sh
	@$(BIN)/python tools/publish.py $(RELEASE) $(PUSH_TO) --helm .cache/node/helm --cosign $(COSIGN) $(if $(SIGN_KEY),--sign-key $(SIGN_KEY)) $(if $(PLAIN_HTTP),--plain-http)

bench: setup servers ## measure; prints tables
	@$(PYTEST) tests/bench -s $(ARGS)

# UPGRADE= keeps the versions that are locked, where they still do.
UPGRADE ?= --upgrade
LOCKED = .cache/uv/bin/uv pip compile --universal --python-version 3.11 $(UPGRADE) --quiet \
  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate

lock: setup ## compile requirements.lock and the images' locks anew from pyproject.toml
	@$(BIN)/python -m venv .cache/uv && .cache/uv/bin/pip install --quiet 'uv>=0.5,<1'
	@$(LOCKED) pyproject.toml --all-extras --output-file requirements.lock
	@sed -E 's/ *\\$$//; /^ +--hash/d' requirements.lock > .cache/pins.txt
	@$(LOCKED) pyproject.toml --constraint .cache/pins.txt --output-file docker/operator.lock
	@$(LOCKED) pyproject.toml --constraint .cache/pins.txt --extra spark --output-file docker/spark.lock
	@$(LOCKED) docker/build.in --constraint .cache/pins.txt --output-file docker/build.lock
	@$(LOCKED) docker/plugin.in --constraint .cache/pins.txt --output-file docker/plugin.lock

clean: ## remove what make made in this folder, the servers included
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build spark-warehouse

# --- steps ----------------------------------------------------------------------------------------------------------------

$(STAMPS):
	@mkdir -p $@

$(STAMPS)/python: tools/system-packages.sh | $(STAMPS)
	@tools/system-packages.sh python
	@touch $@

# Two of apt-get at once would wait for one lock, so the groups are a chain.
$(STAMPS)/system: tools/system-packages.sh | $(STAMPS)/python
	@tools/system-packages.sh base
	@touch $@

# The stamps of the virtual environment are inside it, so that they go with it.
.venv/locked: requirements.lock | $(STAMPS)/python
	@echo "setup: Python packages of requirements.lock into .venv (a minute or two the first time)"
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install --quiet --no-compile --require-hashes --requirement requirements.lock
	@touch $@

.venv/editable: pyproject.toml .venv/locked
	@echo "setup: cdcsync itself, editable"
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/ready: $(addprefix spark_app/cdcsync_spark/engine/,start.py jvm_options.py home.py class_archive.py) tests/support/delta_jars.py .venv/editable | $(STAMPS)/system
	@echo "setup: Delta's jars, with which the tests' Spark reads what was written, by Maven"
	@$(BIN)/python tests/support/delta_jars.py
	@echo "setup: a home and a class archive, with which Spark starts in half the time"
	@$(BIN)/python -m cdcsync_spark.engine.class_archive 2>$(CURDIR)/.cache/warmup.log || echo "setup: none made, see .cache/warmup.log; Spark starts without it"
	@touch $@
	@echo "setup: done, $(BIN)/cdcsync is ready"

$(STAMPS)/mariadb1011: tools/system-packages.sh | $(STAMPS)/system
	@tools/system-packages.sh servers
	@touch $@

$(KEYS_PLUGIN): | $(STAMPS)/mariadb1011
	@echo "servers: MariaDB's plugin for encrypted logs"
	@tests/support/mariadb-plugin.sh $@

$(STAMPS)/mariadb114: demo/cdcsync_demo/embedded.py | .venv/ready
	@echo "servers: MariaDB 11.4 by Maven into the user's cache"
	@$(BIN)/python -c 'from cdcsync_demo import embedded; print("servers:", embedded.fetch_mariadb().server)'
	@touch $@

$(MARIADB118)/usr/sbin/mariadbd: | $(STAMPS)/mariadb1011
	@echo "servers: MariaDB 11.8 by debootstrap into $(MARIADB118) (half a minute, 190 MB)"
	@tests/support/mariadb118-root.sh $(MARIADB118)

$(MYSQL97)/usr/sbin/mysqld: | $(STAMPS)/mariadb1011
	@echo "servers: MySQL 9.7 by debootstrap into $(MYSQL97) (about a minute, 650 MB)"
	@tests/support/mysql97-root.sh $(MYSQL97)

# Two Mavens at once would write to one cache, so what it brings is a chain, beside what debootstrap brings.
$(KAFKA)/formatted/meta.properties: | $(STAMPS)/mariadb114
	@echo "servers: a Kafka broker by Maven into $(KAFKA) (44 MB)"
	@tests/support/kafka-broker.sh $(KAFKA)

$(FLINK)/jars: | $(KAFKA)/formatted/meta.properties
	@echo "servers: Flink SQL, which reads topics, by Maven into $(FLINK) (130 MB)"
	@tests/support/flink-jars.sh $(FLINK)

$(REGISTRY)/app: | $(FLINK)/jars
	@echo "servers: a schema registry by Maven into $(REGISTRY) (110 MB)"
	@tests/support/registry.sh $(REGISTRY)

$(DEBEZIUM)/jars: | $(REGISTRY)/app
	@echo "servers: Debezium's engine, whose records are compared with ours, by Maven into $(DEBEZIUM) (42 MB)"
	@tests/support/debezium-jars.sh $(DEBEZIUM) mysql 3.3.1.Final

$(DEBEZIUM_MARIADB)/jars: | $(DEBEZIUM)/jars
	@echo "servers: Debezium's engine for MariaDB, by Maven into $(DEBEZIUM_MARIADB) (42 MB)"
	@tests/support/debezium-jars.sh $(DEBEZIUM_MARIADB) mariadb 3.4.0.Final

$(AVRO_CONVERTER)/jars: | $(DEBEZIUM_MARIADB)/jars
	@echo "servers: what makes Avro of Debezium's records, by Maven into $(AVRO_CONVERTER) (26 MB)"
	@tests/support/maven-jars.sh $(AVRO_CONVERTER) io.apicurio:apicurio-registry-utils-converter:2.6.13.Final

$(ICEBERG)/classes/IcebergRestServer.class: $(addprefix tests/support/,IcebergRestServer.java SignedStoreIO.java iceberg-jars.sh) | $(AVRO_CONVERTER)/jars
	@echo "servers: Iceberg's library and a REST catalog on it, by Maven into $(ICEBERG) (60 MB)"
	@tests/support/iceberg-jars.sh $(ICEBERG) $$($(BIN)/python -c 'import pyspark; print(pyspark.__path__[0])')/jars

$(GH_OST): tests/support/go-program.sh
	@echo "gh-ost: building it from Go modules (a minute or two, once)"
	@mkdir -p $(@D)
	@rm -f $@
	@tests/support/go-program.sh $@ github.com/github/gh-ost v1.1.8 go/cmd/gh-ost

$(CRANE): tests/support/go_programs.py
	@rm -f $@
	@echo "crane: building it from Go modules (half a minute, once)"
	@cd tests && ../$(BIN)/python -c 'from support.go_programs import CRANE, go_program; go_program("crane", *CRANE)'
	@touch $@
