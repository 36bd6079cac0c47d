package toolsearch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
)

// thousand returns a thousand tools: the published ones, repeated under other server names.
func thousand(tb testing.TB) (map[string][]toolsearch.Tool, []string) {
	tb.Helper()
	published := publishedTools(tb)
	out := map[string][]toolsearch.Tool{}
	var plain []string
	for n := 0; ; n++ {
		for server, list := range published {
			name := fmt.Sprintf("%s-%d", server, n)
			for _, t := range list {
				if len(plain) == 1000 {
					return out, plain
				}
				t.Server, t.ID = name, name+":"+t.Name
				out[name] = append(out[name], t)
				plain = append(plain, strings.ToLower(t.ID+" "+t.Title+" "+t.Description+" "+string(t.InputSchema)))
			}
		}
	}
}

// BenchmarkSearch reports the time of an uncached search among a thousand tools, and its ratio to a
// linear scan of the texts for the same words, which can be compared between machines.
func BenchmarkSearch(b *testing.B) {
	tools, plain := thousand(b)
	texts := []string{"read a file", "lire plusieurs fichiers en même temps", "open a pull request on github", "take a screenshot of the page", "screenshto", "envoyer un message sur slack", "what do I know about Bob", "remmber a fcat about smoebody", "navgiate to a webstie", "itinéraire entre deux villes", "how big is the log in /var/log/app.log", "who changed what in the project lately"}
	for name, opts := range map[string]*toolsearch.Options{"computed": {CacheSize: -1}, "cached": nil} {
		b.Run(name, func(b *testing.B) {
			x := indexOf(tools, opts)
			var ours, naive []time.Duration
			for i := range b.N {
				text := texts[i%len(texts)]
				start := time.Now()
				a, err := x.Search(b.Context(), toolsearch.Query{Text: text})
				ours = append(ours, time.Since(start))
				require.NoError(b, err)
				require.NotEmpty(b, a.Hits)
				start = time.Now()
				scan(plain, text)
				naive = append(naive, time.Since(start))
			}
			report(b, ours, naive)
		})
	}
	b.Run("parallel", func(b *testing.B) {
		x := indexOf(tools, &toolsearch.Options{CacheSize: -1})
		b.RunParallel(func(p *testing.PB) {
			for i := 0; p.Next(); i++ {
				_, _ = x.Search(b.Context(), toolsearch.Query{Text: texts[i%len(texts)]})
			}
		})
	})
	b.Run("replace", func(b *testing.B) {
		x := indexOf(tools, nil)
		for b.Loop() {
			x.Replace("github-0", tools["github-0"])
		}
	})
}

// scan counts the words of a query in each text.
func scan(plain []string, text string) int {
	best := 0
	words := strings.Fields(text)
	for _, one := range plain {
		n := 0
		for _, w := range words {
			n += strings.Count(one, w)
		}
		best = max(best, n)
	}
	return best
}

func report(b *testing.B, ours, naive []time.Duration) {
	b.Helper()
	slices.Sort(ours)
	slices.Sort(naive)
	at := func(list []time.Duration, share float64) float64 {
		return float64(list[int(share*float64(len(list)-1))].Nanoseconds()) / 1000
	}
	b.ReportMetric(at(ours, 0.5), "µs/p50")
	b.ReportMetric(at(ours, 0.99), "µs/p99")
	b.ReportMetric(at(ours, 0.5)/at(naive, 0.5), "of-a-scan/p50")
	b.ReportMetric(at(ours, 0.99)/at(naive, 0.99), "of-a-scan/p99")
}
