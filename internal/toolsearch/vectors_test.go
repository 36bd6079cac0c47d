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
	"comet/internal/toolsearch/graphstore"
	"comet/store/storetest"
)

// model is an embeddings server whose vectors count words, with "automobile" and "car" as the same
// word. Its failures are configurable.
type model struct {
	*httptest.Server
	width, status atomic.Int64 // of vectors; of responses, 0 for 200
	silent        atomic.Bool  // sends no response
	texts         atomic.Int64 // that were embedded
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
	var response struct {
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
		response.Data = append(response.Data, one{i, v})
	}
	_ = json.NewEncoder(w).Encode(response)
}

// embedder returns a client of the model.
func (m *model) embedder(t *testing.T, name string) *embeddings.Client {
	t.Helper()
	c, err := embeddings.New(m.URL, name, &embeddings.Options{Tries: 1})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// otherTools returns tools unrelated to cars.
func otherTools() []toolsearch.Tool {
	return []toolsearch.Tool{tool("boat", "Boat"), tool("cabin", "Cabin"), tool("tree", "Tree"), tool("river", "River"), tool("cloud", "Cloud")}
}

// indexWithCar returns an index with a tool that only the model finds for "automobile".
func indexWithCar(t *testing.T, db *storetest.DB, opts *toolsearch.Options) *toolsearch.Index {
	t.Helper()
	x := toolsearch.New(db.Store, opts)
	x.Replace("fs", append(otherTools(), tool("car", "Car"), tool("rent", "Rent")))
	start(t, x)
	return x
}

// retryOften returns options that retry without a pause.
func retryOften(m *model, t *testing.T) *toolsearch.Options {
	t.Helper()
	return &toolsearch.Options{Embedder: m.embedder(t, "words"), EmbedTimeout: time.Minute, EmbedPause: time.Millisecond}
}

// embeddingsOf returns Meta.Embeddings of a search.
func embeddingsOf(t *testing.T, x *toolsearch.Index) string {
	t.Helper()
	a, err := x.Search(t.Context(), toolsearch.Query{Text: "rent an automobile"})
	require.NoError(t, err)
	require.NotEmpty(t, a.Hits, "the text alone finds a tool")
	return a.Meta.Embeddings
}

func used(t *testing.T, x *toolsearch.Index) func() bool {
	t.Helper()
	return func() bool { return embeddingsOf(t, x) == "used" }
}

func TestEmbeddings(t *testing.T) {
	t.Parallel()

	onDatabases(t, "find tools that the words do not", func(t *testing.T, db *storetest.DB) {
		require.Equal(t, []string{"fs:rent"}, search(t, indexWithCar(t, db, nil), "rent an automobile"))
		x := indexWithCar(t, db, retryOften(newModel(t), t))
		require.Eventually(t, used(t, x), time.Minute, 5*time.Millisecond)
		require.Equal(t, []string{"fs:rent", "fs:car"}, search(t, x, "rent an automobile"))
	})

	onDatabases(t, "are made once per text", func(t *testing.T, db *storetest.DB) {
		m := newModel(t)
		x := indexWithCar(t, db, retryOften(m, t))
		require.Eventually(t, used(t, x), time.Minute, 5*time.Millisecond)
		vectors, err := graphstore.Vectors(t.Context(), db.Store, nil)
		require.NoError(t, err)
		require.Empty(t, vectors)
		before := m.texts.Load()
		require.EqualValues(t, 8, before, "seven tools and the query, whose ranking was cached")
		again := indexWithCar(t, db, retryOften(m, t))
		require.Eventually(t, used(t, again), time.Minute, 5*time.Millisecond)
		require.EqualValues(t, 1, m.texts.Load()-before, "only the query: the vectors of the tools are stored")
		other := indexWithCar(t, db, &toolsearch.Options{Embedder: m.embedder(t, "another model"), EmbedTimeout: time.Minute})
		require.Eventually(t, used(t, other), time.Minute, 5*time.Millisecond)
		require.EqualValues(t, 9, m.texts.Load()-before, "another model has its own vectors")
	})

	onDatabases(t, "follow changed tools", func(t *testing.T, db *storetest.DB) {
		x := indexWithCar(t, db, retryOften(newModel(t), t))
		require.Eventually(t, used(t, x), time.Minute, 5*time.Millisecond)
		x.Replace("fs", append(otherTools(), tool("bike", "Car"), tool("rent", "Rent")))
		require.Eventually(t, func() bool {
			list := search(t, x, "rent an automobile")
			return len(list) == 2 && list[1] == "fs:bike"
		}, time.Minute, 5*time.Millisecond)
	})

	onDatabases(t, "are retried", func(t *testing.T, db *storetest.DB) {
		m := newModel(t)
		m.status.Store(http.StatusUnauthorized)
		x := indexWithCar(t, db, retryOften(m, t))
		require.Eventually(t, func() bool { return embeddingsOf(t, x) == "unavailable: the embeddings server returned status 401" }, time.Minute, 5*time.Millisecond)
		m.status.Store(0)
		require.Eventually(t, used(t, x), time.Minute, 5*time.Millisecond)
	})
}

func TestChangedVectorLength(t *testing.T) {
	t.Parallel()
	onDatabases(t, "for all tools", func(t *testing.T, db *storetest.DB) {
		m := newModel(t)
		require.Eventually(t, used(t, indexWithCar(t, db, retryOften(m, t))), time.Minute, 5*time.Millisecond)
		m.width.Store(32)
		x := indexWithCar(t, db, retryOften(m, t))
		x.Replace("new", []toolsearch.Tool{tool("new:thing", "Thing")}) // its vector is shorter than the stored ones
		require.Eventually(t, used(t, x), time.Minute, 5*time.Millisecond)
	})
}

func TestSearchWithoutEmbeddings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(m *model)
		want string
	}{
		"slow":                  {func(m *model) { m.silent.Store(true) }, "unavailable: no response within 50ms"},
		"refusing":              {func(m *model) { m.status.Store(http.StatusForbidden) }, "unavailable: the embeddings server returned status 403"},
		"another vector length": {func(m *model) { m.width.Store(32) }, "unavailable: the vector of the query does not have the length of those of the tools"},
	} {
		onDatabases(t, name, func(t *testing.T, db *storetest.DB) {
			m := newModel(t)
			first := indexWithCar(t, db, retryOften(m, t))
			require.Eventually(t, used(t, first), time.Minute, 5*time.Millisecond)
			c.fail(m)
			opts := &toolsearch.Options{Embedder: m.embedder(t, "words"), EmbedTimeout: time.Minute, EmbedPause: time.Hour}
			if m.silent.Load() {
				opts.EmbedTimeout = 50 * time.Millisecond
			}
			x := indexWithCar(t, db, opts)
			require.Eventually(t, func() bool { return embeddingsOf(t, x) == c.want }, time.Minute, 5*time.Millisecond)
			require.Equal(t, []string{"fs:rent"}, search(t, x, "rent an automobile"))
			m.silent.Store(false)
			require.Equal(t, c.want, embeddingsOf(t, x), "the embedder is paused, and the failure is not cached")
		})
	}
}

// brokenEmbedder returns invalid vectors.
type brokenEmbedder struct{ vectors [][]float32 }

func (brokenEmbedder) Model() string { return "broken" }

func (b brokenEmbedder) Embed(context.Context, []string) ([][]float32, error) { return b.vectors, nil }

func TestInvalidVectors(t *testing.T) {
	t.Parallel()
	for name, vectors := range map[string][][]float32{
		"none": nil, "too few": {{1}}, "several lengths": {{1}, {1, 2}, {1}, {1}, {1}, {1}, {1}}, "empty": make([][]float32, 7),
	} {
		onDatabases(t, name, func(t *testing.T, db *storetest.DB) {
			x := indexWithCar(t, db, &toolsearch.Options{Embedder: brokenEmbedder{vectors}, EmbedPause: time.Hour})
			require.Eventually(t, func() bool {
				return strings.HasPrefix(embeddingsOf(t, x), "unavailable: the ") && !strings.Contains(embeddingsOf(t, x), "yet")
			}, time.Minute, 5*time.Millisecond)
		})
	}
}
