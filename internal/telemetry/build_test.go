package telemetry

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Version: "v0.3.0"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
			{Key: "vcs.time", Value: "2026-01-10T15:30:00Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}

	t.Run("the module's version is taken, the commit shortened", func(t *testing.T) {
		t.Parallel()
		b := buildOf("", info)
		require.Equal(t, Build{Version: "v0.3.0", Revision: "0123456789ab-dirty", Time: "2026-01-10T15:30:00Z", Go: "go1.26.8"}, b)
		require.Equal(t, "comet v0.3.0 (0123456789ab-dirty) go1.26.8", b.String())
	})
	t.Run("a version set by the linker wins", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "v9", buildOf("v9", info).Version)
	})
	t.Run("a build without a version is dev", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "comet dev ", buildOf("", &debug.BuildInfo{}).String())
		require.Equal(t, "dev", buildOf("", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}).Version)
	})
	t.Run("this test binary has a build", func(t *testing.T) {
		t.Parallel()
		require.NotEmpty(t, ReadBuild("").Go)
	})
}
