package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestPrompts(t *testing.T) {
	t.Parallel()
	rule(t, "they are filled in with who is there", func(t *testing.T, h *house) {
		h.agent(t, "research", "web_search", "custom:web_dig")
		h.agent(t, "analyst", "data_analysis")
		h.says(t, "research", "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		h.says(t, "analyst", "M1|W2>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)

		text, err := h.Prompt(t.Context(), "orchestrator", "fr", "")
		require.NoError(t, err)
		require.Contains(t, text, "- W1 (research, online): caps=web_search,web_dig\n")
		require.Contains(t, text, "- W2 (analyst, online): caps=data_analysis\n")
		require.Contains(t, text, "Tu es COMET")
		text, err = h.Prompt(t.Context(), "worker", "en", "research")
		require.NoError(t, err)
		require.Contains(t, text, "You are W1, a WORKER")
		require.Contains(t, text, "web_search,web_dig")
		require.Contains(t, text, "DEPTH+1 < max_depth", "as decided, not as documented")
		text, err = h.Prompt(t.Context(), "research", "fr", "research")
		require.NoError(t, err)
		require.Contains(t, text, "Tu es W1-RESEARCH")
		require.Contains(t, text, "handoff vers W2-ANALYST")

		for _, bad := range [][3]string{{"poet", "fr", ""}, {"worker", "de", ""}, {"../pipe", "fr", ""}, {"worker", "fr", "nobody"}} {
			_, err := h.Prompt(t.Context(), bad[0], bad[1], bad[2])
			require.True(t, errs.Is(err, errs.NotFound), bad)
		}
	})
	rule(t, "that for research is for who searches, where it is for nobody", func(t *testing.T, h *house) {
		h.agent(t, "analyst", "data_analysis")
		h.agent(t, "searcher", "web_search")
		h.says(t, "analyst", "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		h.says(t, "searcher", "M1|W2>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		for _, language := range []string{"fr", "en"} {
			text, err := h.Prompt(t.Context(), "research", language, "")
			require.NoError(t, err)
			require.Contains(t, text, "W2-RESEARCH")
			require.Contains(t, text, "M<n>|W2>O1|TYPE")
			require.Contains(t, text, "caps=web_search\n")
			require.Contains(t, text, "W1-ANALYST")
		}
		text, err := h.Prompt(t.Context(), "worker", "en", "")
		require.NoError(t, err)
		require.NotContains(t, text, "W2", "that for any worker names none")
	})
	rule(t, "nobody need be there", func(t *testing.T, h *house) {
		for _, name := range []string{"orchestrator", "worker", "research"} {
			for _, language := range []string{"fr", "en"} {
				text, err := h.Prompt(t.Context(), name, language, "")
				require.NoError(t, err)
				require.Contains(t, text, "V5")
				require.NotContains(t, text, "no value")
			}
		}
	})
}
