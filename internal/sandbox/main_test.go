package sandbox_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"comet/internal/sandbox"
)

// TestMain also acts as a child and as processes that tests kill.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument:
		sandbox.Child(os.Stdin, os.Stdout)
	case len(os.Args) == 2 && os.Args[1] == "parent":
		actAsParent()
	case len(os.Args) == 3 && os.Args[1] == "hostile-child":
		actAsHostileChild(os.Args[2])
	default:
		goleak.VerifyTestMain(m)
	}
}
