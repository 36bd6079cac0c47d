package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
)

// chunk sends a chunk of a task's output.
func (h *harness) chunk(t *testing.T, id string, c orchestrator.Chunk) error {
	t.Helper()
	_, err := h.Progress(t.Context(), "a", id, orchestrator.Progress{Chunk: &c})
	return err
}

func piece(start int64, text string) orchestrator.Chunk {
	return orchestrator.Chunk{Start: start, Data: []byte(text)}
}

func TestChunkedOutput(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		chunks       []orchestrator.Chunk
		output, logs string
	}{
		"in order":                      {[]orchestrator.Chunk{piece(0, "ab"), piece(2, "cd")}, "abcd", ""},
		"in any order":                  {[]orchestrator.Chunk{piece(4, "ef"), piece(0, "ab"), piece(2, "cd")}, "abcdef", ""},
		"more than once":                {[]orchestrator.Chunk{piece(0, "ab"), piece(0, "ab"), piece(2, "cd"), piece(0, "ab")}, "abcd", ""},
		"overlapping":                   {[]orchestrator.Chunk{piece(3, "def"), piece(1, "bcde"), piece(0, "abcdefgh")}, "abcdefgh", ""},
		"empty first":                   {[]orchestrator.Chunk{piece(0, ""), piece(0, "ab"), piece(2, ""), piece(2, "cd")}, "abcd", ""},
		"several steps":                 {[]orchestrator.Chunk{{Step: 1, Data: []byte("one")}, {Step: 2, Data: []byte("two")}, {Step: 3, Data: []byte("three")}}, "three", "onetwo"},
		"late chunk of an earlier step": {[]orchestrator.Chunk{{Step: 2, Data: []byte("two")}, {Step: 1, Data: []byte("one")}}, "two", "one"},
		"gap in an earlier step":        {[]orchestrator.Chunk{{Step: 1, Start: 4, Data: []byte("late")}, {Step: 1, Data: []byte("e")}, {Step: 2, Data: []byte("two")}}, "two", "elate"},
		"offsets in characters":         {[]orchestrator.Chunk{{Start: 2, Span: 2, Data: []byte("éé")}, {Start: 0, Span: 2, Data: []byte("ab")}, {Start: 4, Span: 1, Data: []byte("!")}}, "abéé!", ""},
		"spans longer than the data":    {[]orchestrator.Chunk{{Start: 0, Span: 10, Total: 20, Data: []byte("short")}, {Start: 10, Span: 10, Total: 20, Data: []byte("er")}}, "shorter", ""},
		"total in one message":          {[]orchestrator.Chunk{{Start: 2, Data: []byte("cd")}, {Start: 0, Total: 4, Data: []byte("ab")}}, "abcd", ""},
	} {
		withHarness(t, name, func(t *testing.T, h *harness) {
			h.worker(t, "a", 1, "work")
			id := h.submit(t, "work", nil).ID
			for _, chunk := range c.chunks {
				require.NoError(t, h.chunk(t, id, chunk))
			}
			task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{})
			require.NoError(t, err)
			require.Equal(t, c.output, h.output(t, id, models.StreamResult))
			require.Equal(t, c.logs, h.output(t, id, models.StreamLog))
			require.Equal(t, []int{len(c.output), len(c.logs)}, []int{int(task.OutputBytes), int(task.LogBytes)})
		})
	}

	for name, chunks := range map[string][]orchestrator.Chunk{
		"at the beginning": {piece(2, "cd")},
		"in the middle":    {piece(0, "ab"), piece(4, "ef")},
		"at the end":       {{Start: 0, Total: 5, Data: []byte("abcd")}},
	} {
		withHarness(t, "a gap "+name+" keeps the task open", func(t *testing.T, h *harness) {
			h.worker(t, "a", 1, "work")
			h.recordUsage(t, "a", 1) // creates its account
			id := h.submit(t, "work", nil).ID
			for _, chunk := range chunks {
				require.NoError(t, h.chunk(t, id, chunk))
			}
			before := allRows(t, h)
			_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Tokens: 9})
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
			require.Contains(t, err.Error(), "missing")
			requireUnchanged(t, h, before, "Complete")
			_, err = h.Progress(t.Context(), "a", id, orchestrator.Progress{Percent: new(99)})
			require.NoError(t, err)
			requireSound(t, h)
		})
	}

	withHarness(t, "with a gap is kept in the log of a failed attempt", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		require.NoError(t, h.chunk(t, id, orchestrator.Chunk{Start: 4, Total: 9, Data: []byte("came")}))
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureWork})
		require.NoError(t, err)
		require.Equal(t, models.TaskFailed, task.State)
		require.Empty(t, h.output(t, id, models.StreamResult))
		require.Equal(t, "came", h.output(t, id, models.StreamLog))
	})

	withHarness(t, "becomes the log if a complete result follows", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		_, err := h.Progress(t.Context(), "a", id, orchestrator.Progress{Log: []byte("log "), Chunk: &orchestrator.Chunk{Data: []byte("piece")}})
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "a", id, orchestrator.Result{Output: []byte("complete")})
		require.NoError(t, err)
		require.Equal(t, "complete", h.output(t, id, models.StreamResult))
		require.Equal(t, "log piece", h.output(t, id, models.StreamLog))
	})

	withHarness(t, "starts again with each attempt", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		require.NoError(t, h.chunk(t, id, orchestrator.Chunk{Step: 3, Total: 5, Data: []byte("first")}))
		_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		h.advanceUntil(t, id, 1e9, waitsFor(models.NotWaiting))
		require.Empty(t, h.output(t, id, models.StreamResult))
		require.NoError(t, h.chunk(t, id, orchestrator.Chunk{Step: 1, Data: []byte("2nd")}))
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{})
		require.NoError(t, err)
		require.EqualValues(t, 3, task.OutputBytes)
		require.Equal(t, "2nd", h.output(t, id, models.StreamResult))
		require.Empty(t, h.output(t, id, models.StreamLog))
	})

	withHarness(t, "rejects invalid chunks", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		require.NoError(t, h.chunk(t, id, orchestrator.Chunk{Start: 10, Span: 4, Data: []byte("é")}))
		require.NoError(t, h.chunk(t, id, orchestrator.Chunk{Start: 14, Total: 30, Data: []byte("x")}))
		for name, c := range map[string]orchestrator.Chunk{
			"another total":            {Start: 20, Total: 31, Data: []byte("x")},
			"after the total":          {Start: 29, Data: []byte("xx")},
			"before the beginning":     {Start: -1, Data: []byte("xx")},
			"a total below zero":       {Start: 20, Total: -1, Data: []byte("xx")},
			"a span below zero":        {Start: 20, Span: -1, Data: []byte("xx")},
			"a span without data":      {Start: 20, Span: 5},
			"half of a stored chunk":   {Start: 8, Span: 4, Data: []byte("x")},
			"an offset that overflows": {Start: 1<<63 - 2, Data: []byte("xx")},
			"a span that overflows":    {Start: 1, Span: 1<<63 - 1, Data: []byte("xx")},
		} {
			before := allRows(t, h)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(h.chunk(t, id, c)), name)
			requireUnchanged(t, h, before, name)
		}
		before := allRows(t, h)
		err := h.chunk(t, id, orchestrator.Chunk{Step: 1, Start: orchestrator.MaxOutput - 1, Data: []byte("xx")})
		require.Equal(t, errs.LimitReached, errs.CodeOf(err))
		requireUnchanged(t, h, before, "a chunk that is too long")
	})
}

// collected is what a simple receiver makes of chunks: units, bytes or characters, by their
// offset, and the log.
type collected struct {
	step  int
	units map[int]string
	log   strings.Builder
}

func (c *collected) join() string {
	var out strings.Builder
	for i, n := 0, 0; n < len(c.units); i++ {
		if u, there := c.units[i]; there {
			out.WriteString(u)
			n++
		}
	}
	return out.String()
}

// TestRandomChunks sends chunks of random texts in random order: overlapping bytes, or characters
// that are cut once.
func TestRandomChunks(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]uint64{"known seed": 1, "other seed": testkit.Seed(t)} {
		withHarness(t, name, func(t *testing.T, h *harness) {
			h.worker(t, "a", 1, "work")
			r := rand.New(rand.NewPCG(s, 6))
			for round := range 12 {
				id := h.submit(t, "work", nil).ID
				inCharacters := r.IntN(2) == 0
				var texts [3][]string // the units of each step
				var cuts [3][]int
				for i := range texts {
					for range 5 + r.IntN(20) {
						texts[i] = append(texts[i], []string{"a", "é", "€", "𝄞", "x"}[r.IntN(5)])
					}
					if !inCharacters {
						texts[i] = strings.Split(strings.Repeat("0123456789", 3)[:len(texts[i])], "")
					}
					for at := 0; at < len(texts[i]); at += 1 + r.IntN(6) {
						cuts[i] = append(cuts[i], at)
					}
					cuts[i] = append(cuts[i], len(texts[i]))
				}
				got := collected{units: map[int]string{}}
				send := func(step, from, to int) {
					c := orchestrator.Chunk{Step: step, Start: int64(from), Data: []byte(strings.Join(texts[step][from:to], ""))}
					if inCharacters || r.IntN(2) == 0 {
						c.Span = int64(to - from)
					}
					if r.IntN(3) == 0 {
						c.Total = int64(len(texts[step]))
					}
					require.NoError(t, h.chunk(t, id, c), "round %d: step %d, %d-%d", round, step, from, to)
					if step < got.step {
						got.log.Write(c.Data)
						return
					}
					if step > got.step {
						got.log.WriteString(got.join())
						got.step, got.units = step, map[int]string{}
					}
					for i := from; i < to; i++ {
						got.units[i] = texts[step][i]
					}
				}
				for n := range 3 + r.IntN(20) {
					step := r.IntN(2)
					if n > 8 {
						step = r.IntN(3)
					}
					i := r.IntN(len(cuts[step]) - 1)
					from, to := cuts[step][i], cuts[step][i+1]
					if !inCharacters {
						from = r.IntN(len(texts[step]))
						to = from + 1 + r.IntN(len(texts[step])-from)
					}
					send(step, from, to)
				}
				complete := func() (models.Task, error) { return h.Complete(t.Context(), "a", id, orchestrator.Result{}) }
				if last := len(texts[got.step]) - 1; got.units[last] == "" {
					send(got.step, cuts[got.step][len(cuts[got.step])-2], last+1) // which makes a gap
				}
				if len(got.units) < len(texts[got.step]) {
					_, err := complete()
					require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), "round %d", round)
				}
				for i := range len(cuts[got.step]) - 1 {
					send(got.step, cuts[got.step][i], cuts[got.step][i+1])
				}
				task, err := complete()
				require.NoError(t, err, "round %d", round)
				result, log := strings.Join(texts[got.step], ""), got.log.String()
				require.Equal(t, result, h.output(t, id, models.StreamResult), "round %d", round)
				require.Equal(t, log, h.output(t, id, models.StreamLog), "round %d", round)
				require.Equal(t, fmt.Sprint(len(result), len(log)), fmt.Sprint(task.OutputBytes, task.LogBytes), "round %d", round)
			}
		})
	}
}
