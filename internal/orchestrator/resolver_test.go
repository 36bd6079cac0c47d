package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/references"
	"comet/models"
)

// referenceFixture is a session whose tasks refer to each other.
type referenceFixture struct {
	*harness
	session string
}

func newReferenceFixture(t *testing.T, h *harness, facts string) *referenceFixture {
	t.Helper()
	h.worker(t, "w-1", 100, "code_write")
	session, err := h.OpenSession(t.Context(), operator(), "", json.RawMessage(facts))
	require.NoError(t, err)
	return &referenceFixture{h, session.ID}
}

// endedTask returns the id of an ended task of the session with an output.
func (r *referenceFixture) endedTask(t *testing.T, output string) string {
	t.Helper()
	task := r.submit(t, "code_write", func(s *orchestrator.Submission) { s.SessionID = r.session })
	_, err := r.Complete(t.Context(), "w-1", task.ID, orchestrator.Result{Output: []byte(output)})
	require.NoError(t, err)
	return task.ID
}

// submitWith submits parameters and returns those that the agent gets.
func (r *referenceFixture) submitWith(t *testing.T, parameters string) (string, error) {
	t.Helper()
	out, err := r.Submit(t.Context(), operator(), orchestrator.Submission{
		Capabilities: []string{"code_write"}, SessionID: r.session, Parameters: json.RawMessage(parameters),
	}, nil)
	if err != nil {
		return "", err
	}
	d, err := r.Detail(t.Context(), out.Task.ID)
	require.NoError(t, err)
	return string(d.Input.Parameters), nil
}

// requireRefused checks why parameters were rejected.
func requireRefused(t *testing.T, err error, reason string) {
	t.Helper()
	require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
	require.Contains(t, err.Error(), reason)
}

// nested returns 1 inside of so many objects.
func nested(depth int) (text, path string) {
	return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth), strings.Repeat(".a", depth)[1:]
}

// TestReferenceLimits covers the limits of what a request reads.
func TestReferenceLimits(t *testing.T) {
	t.Parallel()

	withHarness(t, "16 names in a path", func(t *testing.T, h *harness) {
		text, path := nested(17)
		r := newReferenceFixture(t, h, text)
		task := r.endedTask(t, text)
		got, err := r.submitWith(t, `{"c":"#CTX:`+path[2:]+`","r":"#REF:`+task+`:`+path[2:]+`"}`)
		require.NoError(t, err)
		require.Equal(t, `{"c":{"a":1},"r":{"a":1}}`, got)
		for _, reference := range []string{"#CTX:" + path, "#REF:" + task + ":" + path} {
			_, err = r.submitWith(t, `{"x":"`+reference+`"}`)
			requireRefused(t, err, "16 names")
		}
	})

	withHarness(t, "256 bytes in a path", func(t *testing.T, h *harness) {
		name := strings.Repeat("n", 256)
		r := newReferenceFixture(t, h, `{"`+name+`":1,"`+name+`n":1}`)
		got, err := r.submitWith(t, `{"x":"#CTX:`+name+`"}`)
		require.NoError(t, err)
		require.Equal(t, `{"x":1}`, got)
		_, err = r.submitWith(t, `{"x":"#CTX:`+name+`n"}`)
		requireRefused(t, err, "256 bytes")
	})

	withHarness(t, "outputs are read once and up to a limit", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, "{}")
		names := strings.Split("cdefghijklmn", "")
		large := `{"a":{"b":1},"` + strings.Join(names, `":1,"`) + `":1,"rest":"` + strings.Repeat("x", 5<<20) + `"}`
		first, second := r.endedTask(t, large), r.endedTask(t, large)
		got, err := r.submitWith(t, `{"a":"#REF:`+first+`:a","b":"#REF:`+first+`:a.b"}`)
		require.NoError(t, err)
		require.Equal(t, `{"a":{"b":1},"b":1}`, got)
		_, err = r.submitWith(t, `{"a":"#REF:`+first+`:a","b":"#REF:`+second+`:a"}`)
		requireRefused(t, err, "the referenced values are longer than 8388608 bytes in total")
		_, err = r.submitWith(t, `{"a":["#REF:`+first+`:`+strings.Join(names, `","#REF:`+first+`:`)+`","#REF:`+first+`:a"]}`)
		requireRefused(t, err, "need more than 67108864 bytes of JSON")
	})

	withHarness(t, "a reference is resolved once", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, "{}")
		large := r.endedTask(t, `{"a":1,"rest":"`+strings.Repeat("x", 5<<20)+`"}`)
		got, err := r.submitWith(t, `{"a":["#REF:`+large+`:a"`+strings.Repeat(`,"#REF:`+large+`:a"`, 13)+`]}`)
		require.NoError(t, err, "it is parsed once")
		require.Equal(t, `{"a":[1`+strings.Repeat(`,1`, 13)+`]}`, got)
	})

	withHarness(t, "translated values count, and so do the outputs that they are part of", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, "{}")
		const size = 5 << 20
		task, err := r.Task(t.Context(), r.endedTask(t, strings.Repeat("x", size)))
		require.NoError(t, err)
		translated := map[string]int{}
		resolver := references.Resolver{Translate: func(ctx context.Context, text string, read references.ReadOutput) (string, bool, error) {
			translated[text]++
			switch kind, _, _ := strings.Cut(strings.TrimPrefix(text, "#MSG:"), "-"); kind {
			case "long":
				return strings.Repeat("v", size), true, nil
			case "output":
				output, err := read(ctx, task, models.StreamResult)
				return output, true, err
			case "part":
				output, err := read(ctx, task, models.StreamResult)
				return output[:min(1, len(output))], true, err
			}
			return "short", true, nil
		}}
		submit := func(references ...string) error {
			parameters, err := json.Marshal(map[string][]string{"a": references})
			require.NoError(t, err)
			_, err = r.Submit(t.Context(), operator(), orchestrator.Submission{
				Capabilities: []string{"code_write"}, SessionID: r.session, Parameters: parameters, Resolver: resolver,
			}, nil)
			return err
		}
		require.NoError(t, submit("#MSG:short", "#MSG:short", "#MSG:short"))
		require.Equal(t, map[string]int{"#MSG:short": 1}, translated, "each is translated once")
		require.NoError(t, submit("#MSG:output", "#MSG:part-1", "#MSG:part-2"), "the output counts once")
		const tooLong = "the referenced values are longer than 8388608 bytes in total"
		requireRefused(t, submit("#MSG:long-1", "#MSG:long-2"), tooLong)
		requireRefused(t, submit("#MSG:part-1", "#MSG:long-1"), tooLong)
		var parts []string
		for n := range 14 {
			parts = append(parts, fmt.Sprint("#MSG:part-", n))
		}
		requireRefused(t, submit(parts...), "need more than 67108864 bytes of JSON")
	})

	withHarness(t, "64 references", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, `{"a":1}`)
		_, err := r.submitWith(t, `{"a":["#CTX:a"`+strings.Repeat(`,"#CTX:a"`, 63)+`]}`)
		require.NoError(t, err)
		_, err = r.submitWith(t, `{"a":["#CTX:a"`+strings.Repeat(`,"#CTX:a"`, 64)+`]}`)
		requireRefused(t, err, "more than 64 references")
	})
}

// TestReferenceValues covers what the document leaves open.
func TestReferenceValues(t *testing.T) {
	t.Parallel()

	withHarness(t, "the last of duplicate members wins", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, "{}")
		task := r.endedTask(t, `{"a":{"b":1},"a":{"b":[2,{"c":1,"c":2}],"d":null},"x":[{"b":3}]}`)
		got, err := r.submitWith(t, `{"b":"#REF:`+task+`:a.b","d":"#REF:`+task+`:a.d"}`)
		require.NoError(t, err)
		require.Equal(t, `{"b":[2,{"c":1,"c":2}],"d":null}`, got)
		for _, path := range []string{"a.b.c", "x.b", "b", "a.b.", "."} {
			_, err = r.submitWith(t, `{"b":"#REF:`+task+`:`+path+`"}`)
			requireRefused(t, err, "has no")
		}
	})

	withHarness(t, "text that is not JSON has no members", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, "{}")
		for _, output := range []string{"", "text", `{"a":1`, `{"a":1} {"a":2}`, `{"a":1}}`, `[{"a":1}]`} {
			_, err := r.submitWith(t, `{"x":"#REF:`+r.endedTask(t, output)+`:a"}`)
			requireRefused(t, err, "has no")
		}
	})

	withHarness(t, "a repeated request gets the same task", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, `{"a":1}`)
		sub := orchestrator.Submission{
			Capabilities: []string{"code_write"}, SessionID: r.session, RequestID: "r", Parameters: json.RawMessage(`{"x":"#CTX:a"}`),
		}
		first, err := r.Submit(t.Context(), operator(), sub, nil)
		require.NoError(t, err)
		_, err = r.Complete(t.Context(), "w-1", first.Task.ID, orchestrator.Result{})
		require.NoError(t, err)
		_, err = r.CloseSession(t.Context(), r.session) // it accepts no more tasks
		require.NoError(t, err)
		again, err := r.Submit(t.Context(), operator(), sub, nil)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, first.Task.ID, again.Task.ID)
		sub.RequestID = ""
		_, err = r.Submit(t.Context(), operator(), sub, nil)
		require.True(t, errs.Is(err, errs.TaskState), "%v", err)
	})

	withHarness(t, "a subtask refers to its session", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, `{"a":1}`)
		source := r.submit(t, "code_write", func(s *orchestrator.Submission) { s.SessionID = r.session })
		out, err := r.HandOff(t.Context(), models.Principal{TokenID: "another"}, "w-1", source.ID, orchestrator.Submission{
			Capabilities: []string{"code_write"}, Parameters: json.RawMessage(`{"x":"#CTX:a"}`),
		})
		require.NoError(t, err)
		d, err := r.Detail(t.Context(), out.Task.ID)
		require.NoError(t, err)
		require.JSONEq(t, `{"x":1}`, string(d.Input.Parameters))
	})

	withHarness(t, "sessions of other owners are hidden", func(t *testing.T, h *harness) {
		r := newReferenceFixture(t, h, `{"a":1}`)
		_, err := r.Submit(t.Context(), models.Principal{TokenID: "another"}, orchestrator.Submission{
			Capabilities: []string{"code_write"}, SessionID: r.session, Parameters: json.RawMessage(`{"x":"#CTX:nothing"}`),
		}, nil)
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
	})
}
