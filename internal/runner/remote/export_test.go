package remote

// Routes lists the method and the path of everything that an agent can ask for.
func Routes() (all [][2]string) {
	for _, t := range (&server{&Runner{}}).routes() {
		all = append(all, [2]string{t.method, t.path})
	}
	return all
}

// Proof is the one of the place of a run.
func (r *Runner) Proof(key, id string) string {
	run := r.of(key, id)
	return r.signer.proof(run.place, key, id)
}

// PlaceOf is the place of a run.
func (r *Runner) PlaceOf(key, id string) Place { return r.of(key, id).place }

// Asking lists the open places whose agents ask for a run.
func (r *Runner) Asking() (asking []Place) {
	r.sharing.mu.Lock()
	defer r.sharing.mu.Unlock()
	for _, o := range r.sharing.places {
		if o.asking > 0 && !o.over && !o.taken {
			asking = append(asking, o.place)
		}
	}
	return asking
}

// OpenPlaces is how many places are open.
func (r *Runner) OpenPlaces() int {
	r.sharing.mu.Lock()
	defer r.sharing.mu.Unlock()
	return len(r.sharing.places)
}
