package sandbox_test

import (
	"os"
	"testing"

	"comet/internal/sandbox"
)

// backend is what runs the code: QuickJS, or the program that is named.
type backend struct{ deno string }

// backends runs a test with QuickJS, and with the Deno that COMET_TEST_DENO names
// (tools/deno/run).
func backends(t *testing.T, test func(t *testing.T, b backend)) {
	t.Helper()
	t.Parallel()
	t.Run("QuickJS", func(t *testing.T) {
		t.Parallel()
		test(t, backend{})
	})
	if deno := os.Getenv("COMET_TEST_DENO"); deno != "" {
		t.Run("Deno", func(t *testing.T) {
			t.Parallel()
			test(t, backend{deno})
		})
	}
}

// started is started with this backend.
func (b backend) started(t testing.TB, opts *sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	var o sandbox.Options
	if opts != nil {
		o = *opts
	}
	o.Deno = b.deno
	return started(t, &o)
}

// pick is what differs between the two.
func pick[T any](b backend, quickjs, deno T) T {
	if b.deno != "" {
		return deno
	}
	return quickjs
}
