#!/bin/sh
# Takes a cluster over from the Alustan controller.
#
#   from-alustan.sh check      list the stacks, and what needs an edit; changes nothing
#   from-alustan.sh hold       have each stack wait for the approval of its first plan
#   from-alustan.sh stop       scale the Alustan controller to zero, and label what it made
#   from-alustan.sh release    remove the finalizers of a metacontroller that is gone
#   from-alustan.sh watch      list the stacks that are not Success under Terrier; 1 if there are any
#   from-alustan.sh clean      delete what only the Alustan controller needed
#
# hold, stop, release and clean print what they would do, and do it only with --yes.
# Every step checks before it acts and can be repeated. It needs kubectl, awk, and the
# cluster that kubectl uses. A value such as a script or a key may have several lines: Go
# templates of kubectl ask whether it is there, so that no line of it counts as a stack.
#
# Settings, from the environment:
#   CONTROLLER_NAMESPACE  where the Alustan controller runs (alustan)
#   CONTROLLER            its Deployment (terraform-controller-helm)
set -eu

CONTROLLER_NAMESPACE=${CONTROLLER_NAMESPACE:-alustan}
CONTROLLER=${CONTROLLER:-terraform-controller-helm}

terraforms=terraforms.alustan.io
finalizer=metacontroller.io/
made=terrier.dev/made-by=alustan # of what a stack of Alustan has by name: nothing of it says so by itself

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

# has writes the value at a path of an object for a Go template; false without it.
has() {
	path=
	for key; do path="$path \"$key\""; done
	printf '(and (exists .%s) (index .%s))' "$path" "$path"
}

# list prints a line NAMESPACE NAME for each stack for which a Go template is true, and
# behind it, quoted, the value of another one if it is given.
list() {
	value=
	[ $# = 1 ] || value=" {{printf \"%q\" (print $2)}}"
	kubectl get "$terraforms" -A -o "go-template={{range .items}}{{if $1}}{{.metadata.namespace}} {{.metadata.name}}$value{{\"\\n\"}}{{end}}{{end}}"
}

# here says in which cluster something is done.
here() { [ "$yes" != true ] || say "cluster: $(kubectl config current-context 2>/dev/null || say "that of this pod")"; }

# running prints the Deployments of Alustan in all namespaces that run or are ending.
running() {
	all=$(kubectl get deployments -A -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.spec.replicas} {.status.replicas}|{.spec.template.spec.containers[*].image}{"\n"}{end}')
	say "$all" | while IFS='|' read -r what images; do
		case "$what|$images" in
		"$CONTROLLER_NAMESPACE/$CONTROLLER "* | */"$CONTROLLER "* | *'|'*alustan*) ;;
		*) continue ;;
		esac
		case $what in
		*' 0 ' | *' 0 0') ;;
		*) say "Deployment ${what%% *}" ;;
		esac
	done
}

# stopped makes sure that nothing of Alustan runs.
stopped() {
	left=$(running)
	[ -z "$left" ] || die "Alustan runs, or is still ending: stop it, and repeat this in a minute:
$left"
	left=$(working)
	[ -z "$left" ] || die "pods of Alustan have not ended; wait for them, or delete those that do nothing:
$left"
}

# mark labels what Alustan made for stacks, as long as it is known: a stack that Terrier
# reconciles has its finalizer, and what is there by name from then on may be of any owner.
mark() {
	all=$(kubectl get "$terraforms" -A -o 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.metadata.finalizers[*]}{"\n"}{end}')
	say "$all" | while read -r namespace name finalizers; do
		case " $finalizers " in
		'  ') [ -n "$name" ] || continue ;;
		*' terrier.dev/alustan '*) continue ;;
		esac
		for what in "pvc/pvc-$name" "configmap/$name-dockerfile-configmap" "configmap/$name-tagged-image"; do
			found=$(kubectl -n "$namespace" get "$what" --ignore-not-found -o name)
			[ -z "$found" ] || act kubectl -n "$namespace" label "$what" "$made" --overwrite
		done
	done
}

# number prints how many lines it reads.
number() { awk 'END { print NR }'; }

# told prints a heading and the lines that it reads, if there are any.
told() { awk -v heading="$1" 'NR == 1 { print heading } { print "  " $1 "/" $2, (NF > 2 ? substr($0, length($1 " " $2 " ") + 1) : "") }'; }

# working prints the pods that Alustan made and that have not ended.
working() {
	for label in appbuild apprun; do
		kubectl get pods -A -l "$label" --field-selector status.phase!=Succeeded,status.phase!=Failed \
			-o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}'
	done
}

# hooked prints the controllers of metacontroller for these stacks, as KIND NAME; nothing if
# metacontroller is not installed.
hooked() {
	for kind in compositecontroller decoratorcontroller; do
		kubectl get "${kind}s.metacontroller.k8s.io" --ignore-not-found -o "jsonpath={range .items[*]}$kind {.metadata.name}{\"\n\"}{end}" 2>/dev/null || true
	done
}

check() {
	say "stacks: $(kubectl get "$terraforms" -A -o name | number)"
	hooked | awk '{ print "metacontroller has the " $1 " " $2 }'
	list "$(has metadata deletionTimestamp)" .metadata.deletionTimestamp | told "in deletion; decide about these before anything else:"
	list "$(has metadata finalizers)" .metadata.finalizers | grep -F "$finalizer" | told "with a finalizer of metacontroller:" || true
	list "$(has spec backend provider)" .spec.backend.provider | told "with a backend that the controller makes; set spec.backend.key to the key in the repository:"
	list "not $(has spec backend provider)" | told "without such a backend; find their state:"
	list "not $(has spec variables)" | told "without variables; the definition of Alustan may have removed them:"
	list "not (or $(has spec gitRepo url) $(has spec containerRegistry semanticVersion))" | told "without spec.gitRepo.url or spec.containerRegistry.semanticVersion:"
	list "and $(has spec gitRepo url) $(has spec containerRegistry semanticVersion)" | told "with both of them; remove one:"
	list "$(has spec gitRepo sshKey)" | told "with a private key in the object; move it to a Secret:"
	list "and $(has spec gitRepo url) (not $(has spec gitRepo sshKeySecret name))" .spec.gitRepo.url |
		awk '$3 ~ /^"ssh:\/\// || $3 ~ /^"[^\/]*@[^\/]*:/' | told "with a URL of ssh; add spec.gitRepo.sshKeySecret:"
	list "and $(has spec containerRegistry imageName) (not $(has spec containerRegistry secretRef name))" |
		told "with an image; add spec.containerRegistry.secretRef if the registry wants a login:"
	list "not $(has spec scripts destroy)" | told "without a destroy script; their objects stay when they are deleted:"
	working | awk 'NR == 1 { print "pods that have not ended:" } { print "  " $0 }'
}

hold() {
	here
	list "not $(has metadata annotations terrier.dev/approval)" | while read -r namespace name; do
		act kubectl -n "$namespace" annotate "$terraforms" "$name" terrier.dev/approval=manual
	done
}

stop() {
	replicas=$(kubectl -n "$CONTROLLER_NAMESPACE" get deployment "$CONTROLLER" --ignore-not-found -o 'jsonpath={.spec.replicas}')
	[ -n "$replicas" ] || die "there is no Deployment $CONTROLLER in $CONTROLLER_NAMESPACE: set CONTROLLER_NAMESPACE and CONTROLLER"
	here
	if [ "$replicas" = 0 ]; then
		say "$CONTROLLER is stopped already"
	else
		act kubectl -n "$CONTROLLER_NAMESPACE" scale deployment "$CONTROLLER" --replicas=0
	fi
	mark
	[ "$yes" != true ] || stopped
}

release() {
	here
	left=$(hooked)
	[ -z "$left" ] || die "metacontroller still has controllers; remove their finalize hook, wait until no stack has its finalizer, and delete them:
$left"
	kubectl get "$terraforms" -A -o 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.metadata.deletionTimestamp} {.metadata.finalizers[*]}{"\n"}{end}' |
		grep -F "$finalizer" | while read -r namespace name rest; do
		case $rest in
		[0-9][0-9][0-9][0-9]-*) # a time comes first
			say "$namespace/$name is in deletion: without the finalizer it is gone at once, and its resources stay. Remove the finalizer yourself once you have decided."
			continue
			;;
		esac
		at=0
		for f in $rest; do
			case $f in
			"$finalizer"*)
				act kubectl -n "$namespace" patch "$terraforms" "$name" --type json \
					-p "[{\"op\":\"test\",\"path\":\"/metadata/finalizers/$at\",\"value\":\"$f\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/$at\"}]"
				[ "$yes" = true ] || at=$((at + 1))
				;;
			*) at=$((at + 1)) ;;
			esac
		done
	done
}

watch() {
	left=$(kubectl get "$terraforms" -A -o "go-template={{range .items}}{{if ne (print $(has status state)) \"Success\"}}{{.metadata.namespace}}/{{.metadata.name}} {{with $(has status state)}}{{.}}{{end}}: {{with $(has status message)}}{{.}}{{end}}{{\"\\n\"}}{{end}}{{end}}")
	[ -z "$left" ] && say "all stacks are Success" && return
	say "$left"
	exit 1
}

# clean deletes what stop has labelled, whatever has such a name since.
clean() {
	here
	stopped
	for label in appbuild apprun; do
		all=$(kubectl get pods -A -l "$label" -o "jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.metadata.labels.$label}{\"\\n\"}{end}")
		say "$all" | while read -r namespace name stack; do
			case $name in
			"$stack"-docker-*) act kubectl -n "$namespace" delete pod "$name" --wait=false ;;
			esac
		done
	done
	all=$(kubectl get pvc,configmap -A -l "$made" -o 'jsonpath={range .items[*]}{.metadata.namespace} {.kind} {.metadata.name}{"\n"}{end}')
	say "$all" | while read -r namespace kind name; do
		case $kind in
		PersistentVolumeClaim) act kubectl -n "$namespace" delete "pvc/$name" --wait=false ;;
		ConfigMap) act kubectl -n "$namespace" delete "configmap/$name" --wait=false ;;
		esac
	done
	[ -n "$all" ] || say "nothing has the label $made, which the step stop gives to what Alustan made"
}

yes=false
[ "${2:-}" = --yes ] && yes=true
case ${1:-} in
check | hold | stop | release | watch | clean) "$1" ;;
*)
	sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
