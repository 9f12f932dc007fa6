package runnertest

import "time"

// Ample is a limit of a step that comes when an engine is where a test wants it, on a
// machine that is as busy as may be: another run of the engine has shown how busy it is.
func Ample(shown Done) time.Duration {
	return max(10*time.Second, 5*shown.Finished.Sub(shown.Started)).Truncate(time.Second)
}
