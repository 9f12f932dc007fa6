# Everything a person or a machine does with this repository. `make` says what
# there is. Flags are set once, here: a package that is built with others is
# built twice, and the control plane takes minutes.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false
export GOWORK      := off

# Where `make up` keeps everything.
DATA_DIR ?= .terrier

# Where the cluster for tests keeps everything.
CLUSTER_DIR ?= .cluster

ifeq ($(filter undefine,$(.FEATURES)),)
$(error GNU make 4 or newer is needed, this is $(MAKE_VERSION))
endif
SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
MAKEFLAGS     += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# A release is the tag it is built from; anything else is one constant, so that
# a commit relinks nothing.
VERSION    ?= $(shell git describe --tags --exact-match 2>/dev/null || echo v0.0.0-dev)
KUBERNETES := 1.37.2
kube       := k8s.io/component-base/version
small      := -s -w
ldflags    := $(small) -X main.version=$(VERSION) -X $(kube).gitVersion=v$(KUBERNETES) \
	-X $(kube).gitMajor=1 -X $(kube).gitMinor=37 -X $(kube).gitTreeState=clean

# The modules, and those of them that have tests. tools/flux and tools/openbao are not among
# them: tidying them takes the modules of all their tests.
modules := . standalone test/monitoring test/standin test/world tools/cluster tools/coredns tools/gcs tools/gen tools/helm tools/images \
	tools/kubectl tools/kubernetes tools/lint tools/providers/kafka tools/providers/local tools/providers/rabbitmq tools/providers/random tools/providers/time tools/tofu
tested  := . standalone test/monitoring test/world tools/cluster tools/gen tools/images

platform := $(shell go env GOOS 2>/dev/null)_$(shell go env GOARCH 2>/dev/null)
mirror   := bin/mirror/registry.opentofu.org

# provider NAMESPACE TYPE VERSION is where a provider lies in the mirror.
provider = $(mirror)/$1/$2/$3/$(platform)/terraform-provider-$2_v$3
random  := $(call provider,hashicorp,random,2.0.0)
local   := $(call provider,hashicorp,local,1.4.0)
time    := $(call provider,hashicorp,time,0.14.2)
world   := $(call provider,terrier-iac,world,0.1.0)

# The providers that the guide of Tenant Operator names lie in a mirror of their
# own: some stand in for what cannot be had, and nobody else should get those.
guide    := bin/mirror-guide/registry.opentofu.org
guided    = $(guide)/$1/$2/$3/$(platform)/terraform-provider-$2_v$3
rabbitmq := $(call guided,cyrilgdn,rabbitmq,1.8.0)
kafka    := $(call guided,mongey,kafka,0.7.1)
standin  := $(call guided,hashicorp,aws,5.99.0)
# The example kyuubi has one with the provider of Vault, which cannot be had either.
kyuubi   := bin/mirror-kyuubi/registry.opentofu.org/hashicorp/vault/5.3.0/$(platform)/terraform-provider-vault_v5.3.0
# The example tenant-building has one with the providers of Proxmox VE, of DNS and of OPNsense.
building := $(foreach p,bpg/proxmox/0.70.1 hashicorp/dns/3.4.3 browningluke/opnsense/0.16.1,bin/mirror-building/registry.opentofu.org/$p/$(platform)/terraform-provider-$(word 2,$(subst /, ,$p))_v$(notdir $p))
standins := $(call guided,hashicorp,random,3.5.1) $(call guided,redis,redis,1.3.5) $(call guided,cyrilgdn,postgresql,1.21.0)

##@ Use it

.PHONY: up
up: build providers ## build, and run everything on this machine, in the foreground
	exec bin/terrier up --quickstart --data-dir $(DATA_DIR)

.PHONY: kyuubi
kyuubi: build providers-kyuubi bin/bao bin/kubectl ## run the example with OpenBao, in the foreground: examples/kyuubi
	exec examples/kyuubi/run.sh $(DATA_DIR)-kyuubi

.PHONY: tenant-building
tenant-building: build providers-building bin/proxmox bin/kubectl ## run the example with machines for tenants, in the foreground: examples/tenant-building
	exec examples/tenant-building/run.sh $(DATA_DIR)-building

.PHONY: down
down: ## stop what `make up` started
	@tools/down.sh $(DATA_DIR)

##@ Build it

.PHONY: deps
deps: ## check that Go, git and make are here and new enough; fetch modules
	@tools/deps.sh $(modules)

.PHONY: build
build: bin/tofu bin/terrier bin/terrier-runner bin/terrier-backend ## bin/terrier, bin/terrier-runner, bin/terrier-backend and the engine they drive

# Go knows best what is out of date in our own programs and in the engine, which needs
# the fixes of a newer Go as well, and does nothing else.
.PHONY: bin/terrier bin/terrier-runner bin/terrier-backend bin/tofu $(world) $(standin)
bin/terrier: | bin/tofu # one big link at a time: each takes gigabytes
	cd standalone && go build -ldflags '$(ldflags)' -o ../$@ .

bin/terrier-runner:
	go build -ldflags '$(small) -X main.version=$(VERSION)' -o $@ ./cmd/terrier-runner

bin/terrier-backend:
	go build -ldflags '$(small) -X main.version=$(VERSION)' -o $@ ./cmd/terrier-backend

bin/tofu:
	cd tools/tofu && go build -ldflags '$(small) -X github.com/opentofu/opentofu/version.dev=no' \
		-o ../../$@ github.com/opentofu/opentofu/cmd/tofu

# What else others wrote changes only when its version does.
bin/kubectl: tools/kubectl/go.mod tools/kubectl/go.sum tools/kubectl/main.go ## kubectl, for who has none
	cd tools/kubectl && go build -ldflags '$(ldflags)' -o ../../$@ .
	@touch $@

# Flux's controller, and the definitions of its kinds beside it. It is large: some
# minutes of compiling, once.
bin/source-controller: tools/flux/go.mod tools/flux/go.sum
	cd tools/flux && go build -ldflags '$(small)' -o ../../$@ github.com/fluxcd/source-controller
	@rm -rf bin/flux && mkdir -p bin/flux
	@cp "$$(cd tools/flux && go list -m -f '{{.Dir}}' github.com/fluxcd/source-controller)"/config/crd/bases/*.yaml bin/flux/
	@chmod -R u+w bin/flux && touch $@

# Kubernetes' own programs, for a real cluster to test on: one by one, since the
# link of each takes gigabytes. Ten minutes of compiling on two cores, once.
.PHONY: cluster-build
cluster-build: $(addprefix bin/kubernetes/,etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet coredns pause) bin/cluster

bin/kubernetes/kube%: tools/kubernetes/go.mod tools/kubernetes/go.sum
	@grep -q 'k8s.io/kubernetes v$(KUBERNETES)\>' tools/kubernetes/go.mod # the release whose API server is embedded
	cd tools/kubernetes && go build -ldflags '$(ldflags)' -o ../../$@ k8s.io/kubernetes/cmd/$(@F)
	@touch $@

bin/kubernetes/etcd: tools/kubernetes/go.mod tools/kubernetes/go.sum
	cd tools/kubernetes && go build -ldflags '$(small)' -o ../../$@ go.etcd.io/etcd/server/v3
	@touch $@

bin/kubernetes/coredns: $(wildcard tools/coredns/*)
	cd tools/coredns && go build -ldflags '$(small)' -o ../../$@ .
	@touch $@

bin/kubernetes/pause: $(wildcard tools/cluster/pause/*)
	cd tools/cluster && go build -ldflags '$(small)' -o ../../$@ ./pause
	@touch $@

# What stands in for Proxmox VE and a router, and a DNS server, for an example.
.PHONY: bin/proxmox
bin/proxmox:
	go build -ldflags '$(small)' -o $@ ./test/proxmox/serve

.PHONY: bin/cluster bin/cluster-probe
bin/cluster:
	cd tools/cluster && go build -ldflags '$(small)' -o ../../$@ .

bin/cluster-probe:
	go build -ldflags '$(small)' -o $@ ./test/cluster/probe

bin/helm: tools/helm/go.mod tools/helm/go.sum
	cd tools/helm && go build -ldflags '$(small)' -o ../../$@ helm.sh/helm/v4/cmd/helm
	@touch $@

# The object stores that records are tested with: one is built, the other is a program
# of Node, and tests go without it where there is no npm.
bin/fake-gcs-server: tools/gcs/go.mod tools/gcs/go.sum
	cd tools/gcs && go build -ldflags '$(small)' -o ../../$@ github.com/fsouza/fake-gcs-server
	@touch $@

# OpenBao takes minutes to build. Tests that need it are skipped without it.
bin/bao: tools/openbao/go.mod tools/openbao/go.sum ## a key management service for tests, if it was built
	cd tools/openbao && go build -ldflags '$(small)' -o ../../$@ github.com/openbao/openbao
	@touch $@

# What needs npm is tested where npm is.
.PHONY: azure-if-npm
azure-if-npm:
	@command -v npm >/dev/null && timeout 300 $(MAKE) --no-print-directory bin/azurite || \
		{ rm -rf bin/azurite; echo 'make: the tests of Azure are skipped: npm, or a registry for it, is not there'; }

bin/azurite: tools/azurite/package.json tools/azurite/package-lock.json ## a server of Azure Blob Storage for tests, if npm is there
	@mkdir -p $@ && cp $^ $@/
	cd $@ && npm ci --silent --ignore-scripts --no-fund --no-audit
	@touch $@

bin/staticcheck: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && go build -o ../../$@ honnef.co/go/tools/cmd/staticcheck
	@touch $@

.PHONY: providers
providers: $(random) $(local) $(time) $(world) ## an offline mirror of the providers that tests and examples use
	@mkdir -p bin/mirror/registry.terraform.io # where terraform looks: the same files, linked
	@cp -rlf $(mirror)/hashicorp bin/mirror/registry.terraform.io/

$(random): $(wildcard tools/providers/random/*)
	cd tools/providers/random && go build -ldflags '$(small)' -o $(CURDIR)/$@ .
	@touch $@

$(local): $(wildcard tools/providers/local/*)
	cd tools/providers/local && go build -ldflags '$(small)' -o $(CURDIR)/$@ .
	@touch $@

$(time): $(wildcard tools/providers/time/*)
	cd tools/providers/time && go build -ldflags '$(small)' -o $(CURDIR)/$@ github.com/hashicorp/terraform-provider-time
	@touch $@

$(world):
	cd test/world && go build -ldflags '$(small)' -o $(CURDIR)/$@ .

.PHONY: providers-guide
providers-guide: $(rabbitmq) $(kafka) $(standin) ## the providers that the guide of Tenant Operator names, or what stands in for them
	@for p in $(standins); do mkdir -p $$(dirname $$p) && ln -f $(standin) $$p; done

.PHONY: providers-kyuubi
providers-kyuubi: $(standin) ## what stands in for the provider of Vault
	@mkdir -p $(dir $(kyuubi)) && ln -f $(standin) $(kyuubi)

.PHONY: providers-building
providers-building: $(standin) ## what stands in for the providers of Proxmox VE, DNS and OPNsense
	@for p in $(building); do mkdir -p $$(dirname $$p) && ln -f $(standin) $$p; done

$(rabbitmq): $(wildcard tools/providers/rabbitmq/*)
	cd tools/providers/rabbitmq && go build -ldflags '$(small)' -o $(CURDIR)/$@ .
	@touch $@

$(kafka): $(wildcard tools/providers/kafka/*)
	cd tools/providers/kafka && go build -ldflags '$(small)' -o $(CURDIR)/$@ github.com/Mongey/terraform-provider-kafka
	@touch $@

$(standin):
	cd test/standin && go build -ldflags '$(small)' -o $(CURDIR)/$@ .

##@ Ship it

# What images are for. Each platform compiles everything once more.
IMAGE_PLATFORMS ?= linux/amd64 linux/arm64
comma    := ,
space    := $() $()
shipped   = $(foreach p,$(subst /,_,$(IMAGE_PLATFORMS)),$(addprefix bin/images/$p/,terrier terrier-runner terrier-backend tofu))
pack      = cd tools/images && go run . $1 -platforms $(subst $(space),$(comma),$(strip $(IMAGE_PLATFORMS)))
for_image = mkdir -p $(@D) && export GOOS=$(firstword $(subst _, ,$*)) GOARCH=$(lastword $(subst _, ,$*))
licence   = cp -f "$$(cd tools/tofu && go list -m -f '{{.Dir}}' github.com/opentofu/opentofu)/LICENSE" $@.LICENSE

.PHONY: images
images: $(shipped) ## OCI images terrier and terrier-runner in dist/images, with SBOM and provenance; IMAGE_PLATFORMS=linux/amd64 makes one
	$(call pack,build) -version $(VERSION) $(if $(DEBIAN_SOURCES),-sources $(abspath $(DEBIAN_SOURCES)))

.PHONY: images-here
images-here:
	@$(MAKE) --no-print-directory images IMAGE_PLATFORMS=$(subst _,/,$(platform))

.PHONY: images-push
images-push: images ## push the images to REGISTRY=registry.example.com/team
	$(call pack,push) -registry '$(REGISTRY)'

.PHONY: images-lock
images-lock: ## pin the newest Debian packages for the images, in tools/images/debian.lock
	cd tools/images && go run . lock $(if $(DEBIAN_SOURCES),-sources $(abspath $(DEBIAN_SOURCES)))

.PHONY: force
force:

bin/images/%/terrier: force
	@$(for_image) && go build -ldflags '$(small) -X main.version=$(VERSION)' -o $@ ./cmd/terrier

bin/images/%/terrier-runner: force
	@$(for_image) && go build -ldflags '$(small) -X main.version=$(VERSION)' -o $@ ./cmd/terrier-runner

bin/images/%/terrier-backend: force
	@$(for_image) && go build -ldflags '$(small) -X main.version=$(VERSION)' -o $@ ./cmd/terrier-backend

bin/images/%/tofu: force
	@$(for_image) && cd tools/tofu && go build -ldflags '$(small) -X github.com/opentofu/opentofu/version.dev=no' \
		-o ../../$@ github.com/opentofu/opentofu/cmd/tofu
	@$(licence)

bin/images/$(platform)/tofu: bin/tofu # the same program
	@mkdir -p $(@D) && ln -f $< $@ && $(licence)

# The version of the chart is that of the program; Helm wants none of its letters.
DIST       ?= dist
HELM_FLAGS ?=
.PHONY: chart
chart: bin/helm ## the Helm chart of this version, in dist
	@mkdir -p $(DIST)
	bin/helm package charts/terrier --version $(VERSION:v%=%) --app-version $(VERSION) --destination $(DIST)

.PHONY: chart-push
chart-push: chart ## push it to oci://REGISTRY/charts
	@[ -n "$(REGISTRY)" ] || { echo "make: say where: make chart-push REGISTRY=registry.example.com/team" >&2; exit 2; }
	bin/helm push $(HELM_FLAGS) $(DIST)/terrier-$(VERSION:v%=%).tgz oci://$(REGISTRY)/charts

##@ Prove it

.PHONY: test
test: deps build providers providers-guide providers-kyuubi providers-building bin/proxmox bin/kubectl bin/helm bin/source-controller bin/fake-gcs-server azure-if-npm ## every test, on a machine that has only Go, git and make
	@tools/test.sh $(tested)

.PHONY: e2e
e2e: build providers providers-guide providers-kyuubi providers-building bin/proxmox bin/kubectl bin/source-controller ## only the end-to-end tests, told as they go
	go test -count=1 -v -timeout 30m ./test/e2e/...

.PHONY: pictures
pictures: deps build providers bin/kubectl ## pictures of every screen, at two widths and in two themes, in bin/pictures
	TERRIER_PICTURES=$(CURDIR)/bin/pictures go test -count=1 -v -timeout 20m -run TestPictures ./test/browser

.PHONY: test-standalone
test-standalone: build ## only the tests of the embedded control plane
	@tools/test.sh standalone

# Started as a program of its own, so that what it says is seen at once. FAULTS
# may hold -only SCENARIO, or -at CRASH for one of them.
.PHONY: test-faults
test-faults: build providers ## crash before and after every durable act of some scenarios: up to an hour
	go test -c -o bin/faults.test ./test/faults
	cd test/faults && ../../bin/faults.test -test.run TestCrashes -test.timeout 65m -test.parallel 3 -every $(FAULTS)

.PHONY: test-images
test-images: images-here ## look into the images for this machine, and run the programs in them
	cd tools/images && TERRIER_IMAGES=$(CURDIR)/dist/images go test -count=1 -v -run TestReal .

.PHONY: bench
bench: build providers ## what a run costs, against the bare engine
	go run ./test/bench

BENCH ?= -only node
# Programs are built outside of the cluster's network, from which no module can be fetched.
.PHONY: bench-cluster
bench-cluster: cluster-up build providers ## what a run costs as a pod of a real node; BENCH='-only fleet' measures 1,000 (needs root)
	go build -o bin/bench ./test/bench
	@$(MAKE) --no-print-directory images-push IMAGE_PLATFORMS=$(subst _,/,$(platform)) REGISTRY="$$(cat $(CLUSTER_DIR)/registry)/bench"
	bin/cluster --state $(abspath $(CLUSTER_DIR)) exec bin/bench $(BENCH) -cluster $(abspath $(CLUSTER_DIR))/kubeconfig -cluster-image registry.example.com/bench/terrier-runner:$(VERSION)

.PHONY: check
check: deps check-format check-generated check-modules check-arch check-vet lint ## everything about the code that needs no control plane

.PHONY: check-format
check-format:
	@tools/check.sh format

.PHONY: check-generated
check-generated:
	@tools/check.sh generated

.PHONY: check-modules
check-modules:
	@tools/check.sh modules $(modules)

.PHONY: check-arch
check-arch:
	go test -count=1 ./internal/archtest # it reads files that the cache does not know of

.PHONY: check-vet
check-vet:
	@tools/check.sh vet $(tested)

.PHONY: lint
lint: bin/staticcheck ## only staticcheck
	@tools/check.sh lint $(tested)

##@ Prove it on a real cluster

.PHONY: cluster-up
cluster-up: cluster-deps cluster-build bin/kubectl bin/helm ## a Kubernetes cluster of one node on this machine (needs root)
	bin/cluster --state $(CLUSTER_DIR) up

.PHONY: cluster-down
cluster-down: ## stop it, and remove all that it made
	@if [ -x bin/cluster ]; then bin/cluster --state $(CLUSTER_DIR) down; fi

.PHONY: cluster-deps
cluster-deps: ## what it needs of the distribution: containerd, runc, network plugins, iptables
	@tools/cluster/deps.sh

# What the test of an upgrade begins with: the last release, or else the last commit but
# one that changed the chart or the programs.
PREVIOUS ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git log -1 --skip=1 --format=%H -- api charts cmd internal)

.PHONY: cluster-previous
cluster-previous: bin/helm bin/tofu
	@tools/cluster/previous.sh '$(PREVIOUS)'

# In the cluster's network: there the tests reach pods, and pods reach the tests.
.PHONY: test-cluster
test-cluster: cluster-up bin/cluster-probe images-here providers cluster-previous ## the tests that need it; it stays up
	go test -count=1 -v -timeout 60m -exec '$(CURDIR)/bin/cluster --state $(abspath $(CLUSTER_DIR)) exec' ./test/cluster/...

# What CI has the time for: the first hour of a user, on real pods, and the node itself.
.PHONY: test-cluster-sample
test-cluster-sample: cluster-up bin/cluster-probe images-here providers ## two minutes of them
	go test -count=1 -v -timeout 20m -run '^(TestQuickstart|TestPodReachesTheTest|TestNetworkPoliciesAreEnforced|TestImagesRunUnderPodSecurityRestricted)$$' \
		-exec '$(CURDIR)/bin/cluster --state $(abspath $(CLUSTER_DIR)) exec' ./test/cluster/...

.PHONY: test-cluster-life
test-cluster-life: cluster-deps cluster-build ## kill the processes of a cluster of its own, and look for traces
	cd tools/cluster && TERRIER_CLUSTER_LIFE=1 go test -count=1 -v ./life

##@ Change it

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: generate
generate: ## CRDs, deepcopy methods and documents that follow from the code
	cd tools/gen && go run .
	go generate ./...

.PHONY: clean
clean: ## remove what was built, and the data of `make up`, which has to be stopped
	@tools/down.sh --check $(DATA_DIR) $(DATA_DIR)-kyuubi/terrier $(DATA_DIR)-building/terrier # they use bin, too
	@$(MAKE) --no-print-directory cluster-down
	rm -rf bin dist $(DATA_DIR)

.PHONY: help
help: ## this
	@tools/help.sh $(MAKEFILE_LIST)
