package toolsearch_test

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
	"comet/internal/toolsearch/embeddings"
	"comet/store/storetest"
)

// model is a server of embeddings whose vectors count words; "automobile" and "car" are the
// same one to it. It can be told to misbehave.
type model struct {
	*httptest.Server
	width, status atomic.Int64 // of vectors; 0 is OK
	silent        atomic.Bool  // does not answer
	texts         atomic.Int64 // it was asked for
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	m.width.Store(64)
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if m.silent.Load() {
		<-r.Context().Done()
		return
	}
	if status := m.status.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	type one struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	var answer struct {
		Data []one `json:"data"`
	}
	for i, text := range req.Input {
		m.texts.Add(1)
		v := make([]float32, m.width.Load())
		v[0] = 0.1
		for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' }) {
			if word == "automobile" {
				word = "car"
			}
			h := fnv.New32a()
			_, _ = h.Write([]byte(word))
			v[1+h.Sum32()%uint32(len(v)-1)]++
		}
		answer.Data = append(answer.Data, one{i, v})
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// embedder asks the model.
func (m *model) embedder(t *testing.T, name string) *embeddings.Client {
	t.Helper()
	c, err := embeddings.New(m.URL, name, &embeddings.Options{Tries: 1})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// tools have nothing to do with cars.
func tools() []toolsearch.Tool {
	return []toolsearch.Tool{tool("boat", "Boat"), tool("house", "House"), tool("tree", "Tree"), tool("river", "River"), tool("cloud", "Cloud")}
}

// garage has a tool that only the model finds when an automobile is asked for.
func garage(t *testing.T, db *storetest.DB, opts *toolsearch.Options) *toolsearch.Index {
	t.Helper()
	x := toolsearch.New(db.Store, opts)
	x.Replace("fs", append(tools(), tool("car", "Car"), tool("rent", "Rent")))
	run(t, x)
	return x
}

// patient waits for what is made in the background.
func patient(m *model, t *testing.T) *toolsearch.Options {
	t.Helper()
	return &toolsearch.Options{Embedder: m.embedder(t, "words"), EmbedTimeout: time.Minute, EmbedPause: time.Millisecond}
}

// state is what a search says of the embeddings.
func state(t *testing.T, x *toolsearch.Index) string {
	t.Helper()
	a, err := x.Search(t.Context(), toolsearch.Query{Text: "rent an automobile"})
	require.NoError(t, err)
	require.NotEmpty(t, a.Hits, "the words are enough")
	return a.Meta.Embeddings
}

func used(t *testing.T, x *toolsearch.Index) func() bool {
	t.Helper()
	return func() bool { return state(t, x) == "used" }
}

func TestEmbeddings(t *testing.T) {
	t.Parallel()

	rule(t, "FindWhatTheWordsDoNot", func(t *testing.T, db *storetest.DB) {
		require.Equal(t, []string{"fs:rent"}, search(t, garage(t, db, nil), "rent an automobile"))
		x := garage(t, db, patient(newModel(t), t))
		require.Eventually(t, used(t, x), time.Minute, time.Millisecond)
		require.Equal(t, []string{"fs:rent", "fs:car"}, search(t, x, "rent an automobile"))
	})

	rule(t, "AreMadeOnceForAText", func(t *testing.T, db *storetest.DB) {
		m := newModel(t)
		x := garage(t, db, patient(m, t))
		require.Eventually(t, used(t, x), time.Minute, time.Millisecond)
		vectors, err := db.ToolVectors(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, vectors)
		before := m.texts.Load()
		require.EqualValues(t, 8, before, "seven tools and the query, which was remembered with its answer")
		again := garage(t, db, patient(m, t))
		require.Eventually(t, used(t, again), time.Minute, time.Millisecond)
		require.EqualValues(t, 1, m.texts.Load()-before, "the query: the tools are in SQL")
		other := garage(t, db, &toolsearch.Options{Embedder: m.embedder(t, "another model"), EmbedTimeout: time.Minute})
		require.Eventually(t, used(t, other), time.Minute, time.Millisecond)
		require.EqualValues(t, 9, m.texts.Load()-before, "vectors of another model are other ones")
	})

	rule(t, "FollowToolsThatChange", func(t *testing.T, db *storetest.DB) {
		x := garage(t, db, patient(newModel(t), t))
		require.Eventually(t, used(t, x), time.Minute, time.Millisecond)
		x.Replace("fs", append(tools(), tool("bike", "Car"), tool("rent", "Rent")))
		require.Eventually(t, func() bool {
			list := search(t, x, "rent an automobile")
			return len(list) == 2 && list[1] == "fs:bike"
		}, time.Minute, time.Millisecond)
	})

	rule(t, "MayComeLater", func(t *testing.T, db *storetest.DB) {
		m := newModel(t)
		m.status.Store(http.StatusUnauthorized)
		x := garage(t, db, patient(m, t))
		require.Eventually(t, func() bool { return state(t, x) == "unavailable: the embeddings server answers with 401" }, time.Minute, time.Millisecond)
		m.status.Store(0)
		require.Eventually(t, used(t, x), time.Minute, time.Millisecond)
	})
}

func TestAModelThatChangesIsAskedAnew(t *testing.T) {
	t.Parallel()
	rule(t, "ForAllTools", func(t *testing.T, db *storetest.DB) {
		m := newModel(t)
		require.Eventually(t, used(t, garage(t, db, patient(m, t))), time.Minute, time.Millisecond)
		m.width.Store(32)
		x := garage(t, db, patient(m, t))
		x.Replace("new", []toolsearch.Tool{tool("new:thing", "Thing")}) // its vector is shorter than those in SQL
		require.Eventually(t, used(t, x), time.Minute, time.Millisecond)
	})
}

func TestWithoutAnswerFromTheModelTheWordsCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(m *model)
		says   string
	}{
		"WhereItIsSlow":               {func(m *model) { m.silent.Store(true) }, "unavailable: no answer within 50ms"},
		"WhereItRefuses":              {func(m *model) { m.status.Store(http.StatusForbidden) }, "unavailable: the embeddings server answers with 403"},
		"WhereItsVectorsAreOfAnother": {func(m *model) { m.width.Store(32) }, "unavailable: the vector of the query has another length than those of the tools"},
	} {
		rule(t, name, func(t *testing.T, db *storetest.DB) {
			m := newModel(t)
			first := garage(t, db, patient(m, t))
			require.Eventually(t, used(t, first), time.Minute, time.Millisecond)
			c.breaks(m)
			opts := &toolsearch.Options{Embedder: m.embedder(t, "words"), EmbedTimeout: time.Minute, EmbedPause: time.Hour}
			if m.silent.Load() {
				opts.EmbedTimeout = 50 * time.Millisecond
			}
			x := garage(t, db, opts)
			require.Eventually(t, func() bool { return state(t, x) == c.says }, time.Minute, time.Millisecond)
			require.Equal(t, []string{"fs:rent"}, search(t, x, "rent an automobile"))
			m.silent.Store(false)
			require.Equal(t, c.says, state(t, x), "it is left alone for a while, and its failure not remembered as an answer")
		})
	}
}

// broken is an embedder that does not keep its word.
type broken struct{ vectors [][]float32 }

func (broken) Model() string { return "broken" }

func (b broken) Embed(context.Context, []string) ([][]float32, error) { return b.vectors, nil }

func TestAnEmbedderThatDoesNotKeepItsWordIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, vectors := range map[string][][]float32{
		"None": nil, "TooFew": {{1}}, "OfSeveralLengths": {{1}, {1, 2}, {1}, {1}, {1}, {1}, {1}}, "Empty": make([][]float32, 7),
	} {
		rule(t, name, func(t *testing.T, db *storetest.DB) {
			x := garage(t, db, &toolsearch.Options{Embedder: broken{vectors}, EmbedPause: time.Hour})
			require.Eventually(t, func() bool {
				return strings.HasPrefix(state(t, x), "unavailable: the ") && !strings.Contains(state(t, x), "yet")
			}, time.Minute, time.Millisecond)
		})
	}
}
