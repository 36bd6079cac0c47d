package api_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"comet/internal/sandbox"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument { // the gateway of a test runs code
		sandbox.Child(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}
