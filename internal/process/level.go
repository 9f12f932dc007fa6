package process

// Level is how well a box isolates.
type Level int

// The levels.
const (
	None   Level = iota // no box at all
	Basic               // another user, limits, an own session
	Kernel              // and Landlock and seccomp
	Full                // and own namespaces, an own tree, no capabilities
)

func (l Level) String() string {
	switch l {
	case None:
		return "none"
	case Basic:
		return "basic"
	case Kernel:
		return "kernel"
	case Full:
		return "full"
	}
	return "unknown"
}

// Probed is what this machine can do.
type Probed struct {
	Level   Level    // the best possible
	Reasons []string // why not better, and which layers are on
}

// Probe tries what this machine can do, once.
func Probe() Probed { return Probed{} }
