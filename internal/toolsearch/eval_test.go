package toolsearch_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
)

// asked is a query of the evaluation set, and the tools of which one is meant.
type asked struct {
	Query, Lang, Set string
	Wants            []string
	// Round is 2 and 3 for those that were written when the search was a second and a third
	// time worked on.
	Round int
}

// quality is how well queries were answered.
type quality struct {
	queries             int
	first, five, places float64
}

func (q *quality) add(place int) {
	q.queries++
	switch {
	case place == 1:
		q.first++
		fallthrough
	case place > 0 && place <= 5:
		q.five++
	}
	if place > 0 {
		q.places += 1 / float64(place)
	}
}

func (q *quality) hit1() float64 { return q.first / float64(q.queries) }
func (q *quality) hit5() float64 { return q.five / float64(q.queries) }

func (q *quality) String() string {
	return fmt.Sprintf("%4d   %.3f   %.3f   %.3f", q.queries, q.hit1(), q.hit5(), q.places/float64(q.queries))
}

// TestSearchFindsWhatIsMeant asks the evaluation set over the tools of thirteen published
// servers and comet's own. Sets a and c1 are tuned on. Set b was written before the search
// was, and its second round before that was changed; it is not tuned on: only its sums are
// looked at, as those of set c2, which says what may stay. `make eval` prints them all. The
// floors are a little below what is reached, so that a change that makes search worse fails
// here.
func TestSearchFindsWhatIsMeant(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/queries.json")
	require.NoError(t, err)
	var queries []asked
	require.NoError(t, json.Unmarshal(text, &queries))
	require.Greater(t, len(queries), 120)

	x := indexOf(realTools(t), nil)
	sums := map[string]*quality{}
	for _, q := range queries {
		a, err := x.Search(t.Context(), toolsearch.Query{Text: q.Query, Limit: 10})
		require.NoError(t, err, q.Query)
		place := 1 + slices.IndexFunc(a.Hits, func(h toolsearch.Hit) bool { return slices.Contains(q.Wants, h.ID) })
		set := "set " + q.Set
		round := fmt.Sprintf("%s, round %d", set, max(1, q.Round))
		names := []string{"all", q.Lang, set, set + " " + q.Lang}
		if q.Set == "a" || q.Set == "b" { // the others have one round
			names = append(names, round, round+" "+q.Lang)
		}
		for _, name := range names {
			if sums[name] == nil {
				sums[name] = &quality{}
			}
			sums[name].add(place)
		}
		if place != 1 && (q.Set == "a" || q.Set == "c1") {
			t.Logf("%s, %d: %s → %s", q.Set, place, q.Query, strings.Join(ids(a)[:min(3, len(a.Hits))], " "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		t.Logf("%-18s queries, hit@1, hit@5, MRR: %s", name, sums[name])
	}
	require.GreaterOrEqual(t, sums["all"].hit1(), 0.88)
	require.GreaterOrEqual(t, sums["set a"].hit1(), 0.94)
	require.GreaterOrEqual(t, sums["set b"].hit1(), 0.72)
	require.GreaterOrEqual(t, sums["set c1"].hit1(), 0.88)
	require.GreaterOrEqual(t, sums["fr"].hit1(), 0.91)
	require.GreaterOrEqual(t, sums["all"].hit5(), 0.95)
}

// TestSearchAnswersWhoHasFewServers asks what a user of three servers asked, and was
// answered badly: the first hit has to be one that does it.
func TestSearchAnswersWhoHasFewServers(t *testing.T) {
	t.Parallel()
	few := realTools(t)
	maps.DeleteFunc(few, func(server string, _ []toolsearch.Tool) bool {
		return !slices.Contains([]string{"everything", "filesystem", "memory", "comet", "agentcards"}, server)
	})
	x := indexOf(few, nil)
	keep := []string{"memory:add_observations", "memory:create_entities", "memory:create_relations"}
	for text, wants := range map[string][]string{
		"mémoriser un fait sur une personne":  keep,
		"remember that Bob works at Acme":     keep,
		"note that Alice likes tea":           keep,
		"retenir une information":             keep,
		"remmber a fact":                      keep,
		"connect two entities":                {"memory:create_relations"},
		"envoyer une tâche à un agent":        {"comet:submit_task"},
		"chercher un fichier par son nom":     {"filesystem:search_files"},
		"quand le fichier a-t-il été modifié": {"filesystem:get_file_info"},
		"run javascript":                      {"agentcards:execute_code"},
		"exécuter du code":                    {"agentcards:execute_code"},
		"raed file":                           {"filesystem:read_file", "filesystem:read_text_file"},
	} {
		require.Contains(t, wants, found(t, x, text)[0], text)
	}
}
