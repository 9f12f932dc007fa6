#!/bin/sh
# Takes a cluster over from tofu-controller, and gives it back.
#
#   from-tofu-controller.sh check      say what is there and what stands in the way; changes nothing
#   from-tofu-controller.sh stop       scale tofu-controller and its branch planner to zero
#   from-tofu-controller.sh backup     copy objects, states, outputs, locks and plans to a new directory
#   from-tofu-controller.sh watch      say how each stack stands under Terrier; 1 if one needs a person
#   from-tofu-controller.sh clean      delete what only tofu-controller needed
#   from-tofu-controller.sh back       scale tofu-controller up again; Terrier must have been stopped
#
# stop, clean and back print what they would do, and do it only with --yes.
# Every step looks before it acts, and all but backup can be repeated: a copy that
# was made later is no copy of what tofu-controller left. No step lets both
# controllers run. It needs kubectl, and the cluster that kubectl speaks to.
#
# Settings, from the environment:
#   CONTROLLER_NAMESPACE  where tofu-controller runs (flux-system)
#   CONTROLLER            its Deployment (tofu-controller)
#   PLANNER               that of its branch planner (branch-planner)
#   REPLICAS              how many of them "back" starts (1)
#   BACKUP                directory of "backup", one for each cluster (terrier-migration)
#   LEASE                 the Lease of Terrier's controller (terrier-controller)
set -eu

CONTROLLER_NAMESPACE=${CONTROLLER_NAMESPACE:-flux-system}
CONTROLLER=${CONTROLLER:-tofu-controller}
PLANNER=${PLANNER:-branch-planner}
REPLICAS=${REPLICAS:-1}
BACKUP=${BACKUP:-terrier-migration}
LEASE=${LEASE:-terrier-controller}

terraforms=terraforms.infra.contrib.fluxcd.io
runners=app.kubernetes.io/created-by=tofu-controller,app.kubernetes.io/name=tf-runner

say() { printf '%s\n' "$*"; }

die() {
	printf 'stopped: %s\n' "$*" >&2
	exit 1
}

# act does what it is given, or says so.
act() {
	if [ "$yes" = true ]; then
		say "+ $*"
		"$@"
	else
		say "would: $*"
	fi
}

# context names the cluster that kubectl speaks to, for people.
context() { kubectl config current-context 2>/dev/null || say "that of this pod"; }

# cluster is the UID of the cluster.
cluster() { kubectl get namespace kube-system -o 'jsonpath={.metadata.uid}'; }

# here says in which cluster something is done, and stops if the backup is of another one.
here() {
	[ "$yes" != true ] || say "cluster: $(context)"
	[ -f "$BACKUP/cluster" ] || return 0
	uid=$(cluster)
	[ "$(sed -n 's/^uid: //p' "$BACKUP/cluster")" = "$uid" ] || die "$BACKUP is of another cluster than this one ($(context), $uid); choose the context, or set BACKUP:
$(cat "$BACKUP/cluster")"
}

# controllers prints the Deployments of tofu-controller and its branch planner in all
# namespaces, under the older name of tofu-controller as well: NAMESPACE NAME REPLICAS PODS.
controllers() {
	all=$(kubectl get deployments -A -o 'jsonpath={range .items[*]}{.metadata.namespace}|{.metadata.name}|{.metadata.labels.app\.kubernetes\.io/name}|{.spec.replicas}|{.status.replicas}{"\n"}{end}')
	say "$all" | while IFS='|' read -r namespace name app wanted pods; do
		case "$namespace/$name $app" in
		"$CONTROLLER_NAMESPACE/$CONTROLLER "* | */"$PLANNER "* | */tofu-controller\ * | */tf-controller\ * | *\ tofu-controller | *\ tf-controller)
			say "$namespace $name ${wanted:-1} ${pods:-0}"
			;;
		esac
	done
}

# running prints what of tofu-controller runs, wherever that is. No Deployment under
# one name says nothing.
running() {
	deployments=$(controllers)
	say "$deployments" | while read -r namespace name wanted pods; do
		[ "$wanted $pods" = '0 0' ] || [ -z "$name" ] || say "Deployment $namespace/$name: $wanted replicas, $pods pods"
	done
	alive 'app.kubernetes.io/name in (tofu-controller,tf-controller)'
}

# alive prints the pods with labels that have not ended.
alive() {
	kubectl get pods -A -l "$1" --field-selector status.phase!=Succeeded,status.phase!=Failed \
		-o 'jsonpath={range .items[*]}Pod {.metadata.namespace}/{.metadata.name}{"\n"}{end}'
}

# leases prints the Leases of Terrier's controllers that name a holder, as
# SECONDS LEASE HOLDER TIME: how long one lasts, and when it was renewed last.
leases() {
	all=$(kubectl -n terrier-system get leases -o 'jsonpath={range .items[*]}{.metadata.name}|{.metadata.labels.terrier\.dev/member-of}|{.spec.leaseDurationSeconds}|{.spec.holderIdentity}|{.spec.renewTime}{"\n"}{end}')
	say "$all" | while IFS='|' read -r name of seconds holder renewed; do
		case "$name|$of" in
		"$LEASE|"* | *"|$LEASE") [ -z "$holder" ] || say "${seconds:-15} $name $holder $renewed" ;;
		esac
	done
}

# ours prints what of Terrier's controller runs, on a machine outside of the cluster
# as well. A controller that was killed leaves its name in its Lease: one that lives has
# renewed it within the time that the Lease lasts.
ours() {
	deployments=$(kubectl get deployments -A -l app.kubernetes.io/name=terrier -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.spec.replicas} {.status.replicas}{"\n"}{end}')
	say "$deployments" | while read -r name wanted pods; do
		[ "${wanted:-0} ${pods:-0}" = '0 0' ] || say "Deployment $name: $wanted replicas, ${pods:-0} pods"
	done
	alive app.kubernetes.io/name=terrier
	before=$(leases)
	[ -n "$before" ] || return 0
	sleep "$(say "$before" | sort -n | sed -n '$s/ .*//p')"
	after=$(leases)
	say "$after" | while read -r seconds name holder renewed; do
		[ -n "$name" ] || continue
		case "
$before
" in
		*"
$seconds $name $holder $renewed
"*) ;;
		*) say "Lease terrier-system/$name: held by $holder" ;;
		esac
	done
}

# nowhere is for who asks for a controller that is not where it is looked for.
nowhere() {
	die "there is no Deployment $CONTROLLER in $CONTROLLER_NAMESPACE: set CONTROLLER_NAMESPACE and CONTROLLER. In this cluster there are:
$(controllers)"
}

# replicas prints how many replicas a Deployment is to have; nothing if there is none.
replicas() {
	kubectl -n "$CONTROLLER_NAMESPACE" get deployment "$1" --ignore-not-found -o 'jsonpath={.spec.replicas}'
}

# runs prints the runner pods that have not ended.
runs() {
	kubectl get pods -A -l "$runners" --field-selector status.phase!=Succeeded,status.phase!=Failed \
		-o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}'
}

# held prints the state locks that somebody holds.
held() {
	kubectl get leases -A -l tfstate=true \
		-o 'jsonpath={range .items[?(@.spec.holderIdentity)]}{.metadata.namespace}/{.metadata.name} {.spec.holderIdentity}{"\n"}{end}'
}

quiet() {
	at_work=$(runs)
	[ -z "$at_work" ] || die "runners are at work; wait until they have ended:
$at_work"
}

# applying prints the stacks that an apply goes on for.
applying() {
	kubectl get "$terraforms" -A -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.status.conditions[?(@.type=="Apply")].reason}{"\n"}{end}' |
		sed -n 's/ Progressing$//p'
}

# differences says of each stack what is done otherwise than by tofu-controller.
differences() {
	kubectl get "$terraforms" -A -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}|{.spec.backendConfig}|{.spec.cloud}|{.spec.approvePlan}|{.status.plan.pending}|{.metadata.deletionTimestamp}|{.spec.destroyResourcesOnDeletion}{"\n"}{end}' |
	while IFS='|' read -r stack backend cloud approved pending deleted destroys; do
		case $backend in
		'') ;;
		*customConfiguration* | *secretSuffix* | *'"disable":true'*) ;;
		*) say "$stack: backendConfig without secretSuffix; Terrier keeps its state under the object's name" ;;
		esac
		[ -z "$cloud" ] || say "$stack: spec.cloud; see the compatibility page for what Terrier does with it"
		if [ -n "$pending" ]; then
			if [ "$approved" = auto ]; then
				say "$stack: $pending waits to be applied; Terrier plans again and applies that"
			elif [ "$approved" = "$pending" ]; then
				say "$stack: $pending is approved and not applied; Terrier plans again and asks for a new approval"
			else
				say "$stack: $pending waits for approval; Terrier plans again"
			fi
		fi
		[ -z "$deleted" ] || [ "$destroys" != true ] || say "$stack: is being deleted, and takes down what it built as soon as Terrier starts"
	done
}

# list prints what a command finds below a title, or that it finds nothing.
list() {
	found=$("$2")
	if [ -n "$found" ]; then
		say "$1:"
		say "$found" | sed 's/^/  /'
	else
		say "$1: none"
	fi
}

check() {
	kubectl get crd "$terraforms" >/dev/null || die "this cluster has no $terraforms"
	say "cluster: $(context)"
	say "stacks: $(kubectl get "$terraforms" -A -o name | wc -l | tr -d ' ')"
	for d in "$CONTROLLER" "$PLANNER"; do
		n=$(replicas "$d")
		say "deployment $CONTROLLER_NAMESPACE/$d: ${n:-none}${n:+ replicas}"
	done
	list "tofu-controller that runs" running
	list "Terrier that runs" ours
	list "applies that go on" applying
	list "runners at work" runs
	list "state locks that are held" held
	list "what to know of stacks" differences
}

# stop starts with a look at what goes on: tofu-controller interrupts what takes
# longer than its graceful shutdown.
stop() {
	here
	going=$(applying)
	[ -z "$going" ] || [ "$(replicas "$CONTROLLER")" = 0 ] || die "applies go on; wait until they have ended:
$going"
	found=false
	for d in "$CONTROLLER" "$PLANNER"; do
		n=$(replicas "$d")
		[ -n "$n" ] || continue
		found=true
		if [ "$n" = 0 ]; then
			say "$d is stopped already"
		else
			act kubectl -n "$CONTROLLER_NAMESPACE" scale deployment "$d" --replicas=0
		fi
	done
	[ "$found" = true ] || nowhere
	[ "$yes" = true ] || return 0
	stopped
	say "tofu-controller is stopped, and no runner is at work"
}

# stopped makes sure that nothing of tofu-controller runs.
stopped() {
	left=$(running)
	[ -z "$left" ] || die "tofu-controller runs, or is still ending: stop it, and repeat this in a minute:
$left"
	quiet
}

# save copies objects to a file of the backup.
save() {
	file=$1
	shift
	kubectl get "$@" -o yaml >"$BACKUP.part/$file"
	say "$BACKUP/$file: $(grep -c '^- apiVersion:' "$BACKUP.part/$file" || true) objects"
}

# backup makes a directory that is complete or not there, and replaces none.
backup() {
	[ ! -e "$BACKUP" ] || die "$BACKUP is there, and is kept as it is. To make another backup, name another directory with BACKUP"
	stopped
	begun=$(ours)
	[ -z "$begun" ] || die "Terrier runs: what would be copied is not what tofu-controller left:
$begun"
	umask 077 # states and outputs are secret
	rm -rf "$BACKUP.part" # of a backup that was interrupted
	mkdir -p "$BACKUP.part"
	printf 'context: %s\nuid: %s\n' "$(context)" "$(cluster)" >"$BACKUP.part/cluster"
	save terraforms.yaml "$terraforms" -A
	save states.yaml secrets -A -l tfstate=true
	save locks.yaml leases -A -l tfstate=true
	save plans.yaml secrets,configmaps -A -l infra.contrib.fluxcd.io/plan-name
	kubectl get "$terraforms" -A -o 'jsonpath={range .items[?(@.spec.writeOutputsToSecret.name)]}{.metadata.namespace} {.spec.writeOutputsToSecret.name}{"\n"}{end}' | sort -u >"$BACKUP.part/outputs.list"
	while read -r namespace name; do
		[ -n "$name" ] || continue
		echo '---'
		kubectl -n "$namespace" get secret "$name" --ignore-not-found -o yaml
	done <"$BACKUP.part/outputs.list" >"$BACKUP.part/outputs.yaml"
	say "$BACKUP/outputs.yaml: $(grep -c '^kind: Secret' "$BACKUP.part/outputs.yaml" || true) objects"
	mv "$BACKUP.part" "$BACKUP"
	say "cluster: $(context). Terrier may start now"
}

# watch prints every stack that Terrier has looked at and that is not ready.
watch() {
	here
	left=$(running)
	[ -z "$left" ] || die "tofu-controller runs beside Terrier, and both apply: stop one of them now:
$left"
	waiting=0 seen=0 all=0
	stacks=$(mktemp)
	trap 'rm -f "$stacks"' EXIT
	kubectl get "$terraforms" -A -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}|{.spec.suspend}|{.status.terrier.phase}|{.status.conditions[?(@.type=="Ready")].status}|{.status.terrier.waitingFor}{"\n"}{end}' >"$stacks"
	while IFS='|' read -r stack suspended phase ready why; do
		[ -n "$stack" ] || continue
		all=$((all + 1))
		[ -z "$phase" ] || seen=$((seen + 1))
		[ "$suspended" != true ] || continue
		[ "$ready" != True ] || [ -z "$phase" ] || continue
		waiting=$((waiting + 1))
		say "$stack: ${phase:-not looked at yet}${why:+: $why}"
	done <"$stacks"
	say "$all stacks, $seen of them looked at, $waiting not ready"
	[ "$waiting" = 0 ]
}

# clean leaves readable plans alone: those are Terrier's now. It wants to see that Terrier
# has taken the stacks over, and not only that nothing of tofu-controller is found.
clean() {
	here
	stopped
	phases=$(kubectl get "$terraforms" -A -o 'jsonpath={.items[*].status.terrier.phase}')
	[ -n "$phases" ] ||
		die "Terrier has looked at no stack of this cluster ($(context)), so that nothing says that it was taken over"
	kubectl get secrets -A -l infra.contrib.fluxcd.io/plan-name \
		-o 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.metadata.annotations.infra\.contrib\.fluxcd\.io/plan-full-name}{"\n"}{end}' |
	while read -r namespace name full; do
		case $full in
		*.json) ;;
		*) act kubectl -n "$namespace" delete secret "$name" --ignore-not-found ;;
		esac
	done
	kubectl get secrets -A -l infra.contrib.fluxcd.io/terraform=true --field-selector type=kubernetes.io/tls \
		-o 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}' |
	while read -r namespace name; do
		case $name in
		terraform-runner.tls-*) act kubectl -n "$namespace" delete secret "$name" --ignore-not-found ;;
		esac
	done
	kubectl get secrets -A --field-selector metadata.name=tf-runner.cache-encryption \
		-o 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}' |
	while read -r namespace name; do
		act kubectl -n "$namespace" delete secret "$name" --ignore-not-found
	done
	say "left alone: service accounts tf-runner and their roles, which may be used by others"
}

back() {
	here
	left=$(ours)
	[ -z "$left" ] || die "Terrier runs, and both would apply, each by approvals that were given to the other: stop it first:
$left"
	locks=$(held)
	[ -z "$locks" ] || die "states are locked; wait until these runs have ended, or see who holds them:
$locks"
	found=false
	for d in "$CONTROLLER" "$PLANNER"; do
		n=$(replicas "$d")
		[ -n "$n" ] || continue
		found=true
		if [ "$n" != 0 ]; then
			say "$d runs already"
		else
			act kubectl -n "$CONTROLLER_NAMESPACE" scale deployment "$d" --replicas="$REPLICAS"
		fi
	done
	[ "$found" = true ] || nowhere
}

step=${1:-}
yes=false
[ "${2:-}" != --yes ] || yes=true
case ${2:-} in
'' | --yes) ;;
*) die "$2 is not known; what can be added to a step is --yes" ;;
esac
case $step in
check | stop | backup | watch | clean | back) "$step" ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
