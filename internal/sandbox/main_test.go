package sandbox_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"comet/internal/sandbox"
)

// TestMain is also the children, and processes that tests end.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument:
		sandbox.Child(os.Stdin, os.Stdout)
	case len(os.Args) == 2 && os.Args[1] == "a-parent":
		beAParent()
	case len(os.Args) == 3 && os.Args[1] == "broken-child":
		brokenChild(os.Args[2])
	default:
		goleak.VerifyTestMain(m)
	}
}
