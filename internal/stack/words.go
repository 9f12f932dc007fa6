package stack

import "strings"

// Words are what one kind of stack calls the things that texts for users name: its fields
// and its annotations. The dialect of the kind has them. So no text of this package, or of
// a package above it, names a field that another kind of stack does not have.
//
// What only one kind has, such as planOnly or a destroy script, is named as that kind does.
type Words struct {
	Argument    string // what names the stack in a command
	Approved    string // where an approval names its plan
	Automatic   string // a sentence: every plan is applied without an approval
	Resume      string // a command: ends a suspension
	Source      string // a command: shows the source object
	Retries     string // the limit of retries
	Pause       string // a sentence: how long the pause before a retry is
	Interval    string // the time between two drift checks
	Outputs     string // a sentence: how outputs are published
	Variables   string // where a variable of the module gets its value
	Environment string // where a variable of the environment gets its value
	Credentials string // a sentence: how the environment of a run gets credentials
	Account     string // how another ServiceAccount is named for the pods of runs
	Priority    string // the same for a PriorityClass
	PodTemplate string // a sentence: what of the object shapes the pods of runs
	StateName   string // what names the Secret of the state
	StatePlace  string // what says where a state is
	StateBack   string `json:"-"` // what a user sets as before, so that a state is where it was; only the controller says it
}

// In puts the words of the kind into a text of this program, which has a mark such as
// {retries} in place of each. What users or other programs wrote is no such text.
func (w Words) In(text string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return strings.NewReplacer(
		"{argument}", w.Argument, "{approved}", w.Approved, "{automatic}", w.Automatic, "{resume}", w.Resume, "{source}", w.Source,
		"{retries}", w.Retries, "{pause}", w.Pause, "{interval}", w.Interval, "{outputs}", w.Outputs,
		"{variables}", w.Variables, "{environment}", w.Environment, "{credentials}", w.Credentials, "{account}", w.Account, "{priority}", w.Priority, "{podTemplate}", w.PodTemplate,
		"{stateName}", w.StateName, "{statePlace}", w.StatePlace, "{stateBack}", w.StateBack,
	).Replace(text)
}
