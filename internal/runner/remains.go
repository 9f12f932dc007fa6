package runner

// Remain is a place in which something may still run although its run has ended: a pod
// that was not told yet that its run is forgotten, or that is about to end.
type Remain struct {
	Stack     string // the identity of the stack, its UID
	Place     string // tells it from other places of the stack
	Namespace string
}

// Lingering is a Runner whose runs leave places behind. As long as one is there, it
// takes room from other runs.
type Lingering interface {
	// Remains lists the places that the runs of a stack left, of all stacks if that
	// is empty.
	Remains(stack string) []Remain

	// Vacated sends every place that Remains listed once nothing runs there any more.
	// It is not listed again before that. The channel is never closed.
	Vacated() <-chan Remain
}
