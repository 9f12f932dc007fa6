package sealer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/runner/socket"
)

// argument is that by which a binary that calls Main knows that the engine asks it to encrypt
// or decrypt. The operation and the socket follow.
const argument = "seal-state"

// Main must be called early in the main function of a binary that supervises runs. In the
// program that the engine starts it never returns; else it does nothing.
func Main() {
	if len(os.Args) != 4 || os.Args[1] != argument || len(os.Args[2]) != 1 {
		return
	}
	if err := program(operation(os.Args[2][0]), os.Args[3], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Methods are what the engine needs to ask: program is this one, and path that of Listen, as
// a program of the run sees them.
func Methods(program, path string) encryption.Methods {
	command := func(op operation) []string { return []string{program, argument, string(op), path} }
	return encryption.Methods{Encrypt: command(encrypt), Decrypt: command(decrypt), DecryptOlder: command(decryptOlder)}
}

// payload is what the external method of OpenTofu sends and gets.
type payload struct {
	Payload []byte `json:"payload"`
}

func program(op operation, path string, in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprintln(out, `{"magic":"OpenTofu-External-Encryption-Method","version":1}`); err != nil {
		return err
	}
	var asked payload
	if err := json.NewDecoder(in).Decode(&asked); err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	answer, err := ask(op, path, asked.Payload)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(payload{answer})
}

func ask(op operation, path string, data []byte) ([]byte, error) {
	conn, err := socket.Dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err = conn.Write(append([]byte{byte(op)}, data...)); err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		return nil, fmt.Errorf("asking the supervisor of the run: %w", err)
	}
	answer, err := io.ReadAll(conn)
	switch {
	case err != nil || len(answer) == 0:
		return nil, errors.Join(errors.New("the supervisor of the run gave no answer"), err)
	case answer[0] != done:
		return nil, errors.New(string(answer[1:]))
	}
	return answer[1:], nil
}
