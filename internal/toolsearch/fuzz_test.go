package toolsearch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
)

// FuzzSearch checks for any query and any tool that a search does not panic, that scores are in 0…1
// and sorted, and that the result is the same for a second index.
func FuzzSearch(f *testing.F) {
	for _, text := range []string{"read a file", "lire l'été", "", "\xff\xfe", "PR", "a", "mettre à jour", "ﬁle ½ 文件 ", "readHTTPFile2", "l’œuvre d'un dossier"} {
		f.Add(text, text)
	}
	tools := publishedTools(f)
	x, again := indexOf(tools, &toolsearch.Options{CacheSize: -1}), indexOf(tools, &toolsearch.Options{CacheSize: -1})
	f.Fuzz(func(t *testing.T, text, description string) {
		odd := []toolsearch.Tool{{ID: "odd:tool", Server: "odd", Name: description, Title: description, Description: description, InputSchema: []byte(description)}}
		x.Replace("odd", odd)
		again.Replace("odd", odd)
		q := toolsearch.Query{Text: text, Limit: toolsearch.MaxLimit, IncludeRelated: true, ContextTools: []string{description}}
		a, err := x.Search(t.Context(), q)
		b, failed := again.Search(t.Context(), q)
		require.Equal(t, err == nil, failed == nil)
		require.Equal(t, a.Hits, b.Hits)
		before := 1.0
		for _, h := range a.Hits {
			for _, score := range []float64{h.Score, h.SemanticScore, h.GraphScore} {
				require.True(t, score >= 0 && score <= 1, "%s: %v", h.ID, score)
			}
			require.LessOrEqual(t, h.Score, before)
			before = h.Score
		}
	})
}
