package rego

// Member is one of the policies that are asked about a plan.
type Member struct {
	Policy     string // ClusterPolicy/production
	Set        *Set
	Parameters any
}
