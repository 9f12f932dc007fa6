// Package executable writes programs that a test runs at once. A kernel runs no program that
// a process has open for writing (ETXTBSY). A process that another part of the test starts meanwhile
// has a copy of the file that is being written, until it has become its own program.
//
// It makes no programs. Start reading at Write.
package executable

import (
	"os"
	"syscall"
)

// Write is os.WriteFile, while this process starts no other.
func Write(path string, text []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, mode)
}
