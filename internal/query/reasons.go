package query

// The reasons of this package's faults. Hint says what to do about each.
const (
	ReasonNoPlan      = "NoPlan"
	ReasonNoRuns      = "NoRuns"
	ReasonNotKept     = "NotKept"
	ReasonPlanChanged = "PlanChanged"
	ReasonNotManual   = "NotManual"
	ReasonManifest    = "ManifestInvalid"
	ReasonNoOutputs   = "NoOutputs"
	ReasonUnpublished = "Unpublished"
	ReasonNotRetained = "NotRetained"
)
