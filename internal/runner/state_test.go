package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/stack"
)

func stateOf(lineage string, serial int) []byte {
	return fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":%q,"outputs":{},"resources":[]}`, serial, lineage)
}

func TestRescue(t *testing.T) {
	for name, tt := range map[string]struct {
		data     []byte
		state    []byte
		reported bool
	}{
		"a state that follows is taken over":         {data: stateOf("a", 2), state: stateOf("a", 2)},
		"one of another lineage is kept apart":       {data: stateOf("b", 2), state: stateOf("a", 1), reported: true},
		"one that cannot be read is kept for people": {data: []byte("half"), state: stateOf("a", 1), reported: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := managed.NewStore(filepath.Join(dir, FileState), stateOf("a", 1), true, func(stack.StateID, *managed.File) {})
			if err != nil {
				t.Fatal(err)
			}
			r := &managedState{run: &run{dir: dir, reportFile: &reportFile{dir: dir}}, store: store}
			if err := r.rescue(tt.data); err != nil {
				t.Fatal(err)
			}
			if got, _ := store.Newest(); !bytes.Equal(got, tt.state) {
				t.Errorf("the state is %s, want %s", got, tt.state)
			}
			kept, _ := os.ReadFile(filepath.Join(dir, FileRescue))
			if reported := r.reportFile.content().Rescued != nil; reported != tt.reported || reported != bytes.Equal(kept, tt.data) {
				t.Errorf("rescued %q, reported %v, want reported %v", kept, reported, tt.reported)
			}
		})
	}
}
