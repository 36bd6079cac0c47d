package app_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
)

// TestCodeInDeno runs code in the Deno that COMET_TEST_DENO names, if it names one.
func TestCodeInDeno(t *testing.T) {
	t.Parallel()
	t.Run("AStartWithoutItSaysWhichSettingIsMeant", func(t *testing.T) {
		t.Parallel()
		cfg := configured(t, "sqlite")
		cfg.Sandbox.Backend, cfg.Sandbox.Deno = "deno", "/nowhere/deno"
		a, err := app.New(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.ErrorContains(t, a.Start(t.Context()), "sandbox.deno: sandbox.backend deno needs Deno 2.9 or newer")
		require.NoError(t, a.Stop(t.Context()))
	})
	if program := os.Getenv("COMET_TEST_DENO"); program != "" {
		t.Run("ToolsAreCalledAsEver", func(t *testing.T) {
			t.Parallel()
			h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.Sandbox.Backend, cfg.Sandbox.Deno = "deno", program }, newGithub(t))
			s := h.holder(t, "").speak(t, newest, nil)
			require.InDelta(t, 3, result(t, run(t, s, `const all: any[] = await github.listCommits({ limit: 100 }); return all.length`, nil)), 0)
			require.Equal(t, "EvalError", result(t, run(t, s, `try { eval("1") } catch (e) { return e.name }`, nil)), "it is Deno")
		})
	}
}
