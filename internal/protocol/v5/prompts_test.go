package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestPrompts(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "are filled in with the online workers", func(t *testing.T, f *fixture) {
		f.agent(t, "research", "web_search", "custom:web_dig")
		f.agent(t, "analyst", "data_analysis")
		f.send(t, "research", "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		f.send(t, "analyst", "M1|W2>O1|J|T0|-|-|-|0|S0|-|version=V5;desc=Draws charts", 0)

		text, err := f.Prompt(t.Context(), "orchestrator", "fr", "")
		require.NoError(t, err)
		require.Contains(t, text, "- W1 (research, online): caps=web_search,web_dig\n")
		require.Contains(t, text, "- W2 (analyst, online): caps=data_analysis;desc=Draws charts\n")
		require.Contains(t, text, "Tu es COMET")
		text, err = f.Prompt(t.Context(), "worker", "en", "research")
		require.NoError(t, err)
		require.Contains(t, text, "You are W1, a WORKER")
		require.Contains(t, text, "web_search,web_dig")
		require.Contains(t, text, "DEPTH+1 < max_depth", "the decided rule, not the documented one")
		text, err = f.Prompt(t.Context(), "research", "fr", "research")
		require.NoError(t, err)
		require.Contains(t, text, "Tu es W1-RESEARCH")
		require.Contains(t, text, "handoff vers W2-ANALYST")

		for _, bad := range [][3]string{{"poet", "fr", ""}, {"worker", "de", ""}, {"../pipe", "fr", ""}, {"worker", "fr", "unknown"}} {
			_, err := f.Prompt(t.Context(), bad[0], bad[1], bad[2])
			require.True(t, errs.Is(err, errs.NotFound), bad)
		}
	})
	testOnDatabases(t, "the research prompt without an agent is that of a searching worker", func(t *testing.T, f *fixture) {
		f.agent(t, "analyst", "data_analysis")
		f.agent(t, "searcher", "web_search")
		f.send(t, "analyst", "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		f.send(t, "searcher", "M1|W2>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		for _, language := range []string{"fr", "en"} {
			text, err := f.Prompt(t.Context(), "research", language, "")
			require.NoError(t, err)
			require.Contains(t, text, "W2-RESEARCH")
			require.Contains(t, text, "M<n>|W2>O1|TYPE")
			require.Contains(t, text, "caps=web_search\n")
			require.Contains(t, text, "W1-ANALYST")
		}
		text, err := f.Prompt(t.Context(), "worker", "en", "")
		require.NoError(t, err)
		require.NotContains(t, text, "W2", "the prompt without an agent names none")
	})
	testOnDatabases(t, "work without any worker", func(t *testing.T, f *fixture) {
		for _, name := range []string{"orchestrator", "worker", "research"} {
			for _, language := range []string{"fr", "en"} {
				text, err := f.Prompt(t.Context(), name, language, "")
				require.NoError(t, err)
				require.Contains(t, text, "V5")
				require.NotContains(t, text, "no value")
			}
		}
	})
}
