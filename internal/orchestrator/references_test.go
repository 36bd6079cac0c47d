package orchestrator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

// referring is a session whose tasks refer to each other.
type referring struct {
	*house
	session string
}

func newReferring(t *testing.T, h *house, facts string) *referring {
	t.Helper()
	h.worker(t, "w-1", 100, "code_write")
	session, err := h.OpenSession(t.Context(), ops(), "", json.RawMessage(facts))
	require.NoError(t, err)
	return &referring{h, session.ID}
}

// ended is a task of the session that has put out a text.
func (r *referring) ended(t *testing.T, output string) string {
	t.Helper()
	task := r.submit(t, "code_write", func(s *orchestrator.Submission) { s.Session = r.session })
	_, err := r.Complete(t.Context(), "w-1", task.ID, orchestrator.Result{Output: []byte(output)})
	require.NoError(t, err)
	return task.ID
}

// refer submits parameters and returns what its agent is given.
func (r *referring) refer(t *testing.T, parameters string) (string, error) {
	t.Helper()
	out, err := r.Submit(t.Context(), ops(), orchestrator.Submission{
		Capabilities: []string{"code_write"}, Session: r.session, Parameters: json.RawMessage(parameters),
	}, nil)
	if err != nil {
		return "", err
	}
	d, err := r.Detail(t.Context(), out.Task.ID)
	require.NoError(t, err)
	return string(d.Input.Parameters), nil
}

// refused says why parameters are not taken.
func refused(t *testing.T, err error, reason string) {
	t.Helper()
	require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
	require.Contains(t, err.Error(), reason)
}

// nested is 1 below so many names.
func nested(depth int) (text, path string) {
	return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth), strings.Repeat(".a", depth)[1:]
}

// TestReferencesAreBounded: what one request may have the server read.
func TestReferencesAreBounded(t *testing.T) {
	t.Parallel()

	rule(t, "APathHasSixteenNames", func(t *testing.T, h *house) {
		text, path := nested(17)
		r := newReferring(t, h, text)
		task := r.ended(t, text)
		got, err := r.refer(t, `{"c":"#CTX:`+path[2:]+`","r":"#REF:`+task+`:`+path[2:]+`"}`)
		require.NoError(t, err)
		require.Equal(t, `{"c":{"a":1},"r":{"a":1}}`, got)
		for _, reference := range []string{"#CTX:" + path, "#REF:" + task + ":" + path} {
			_, err = r.refer(t, `{"x":"`+reference+`"}`)
			refused(t, err, "16 names")
		}
	})

	rule(t, "APathHas256Bytes", func(t *testing.T, h *house) {
		name := strings.Repeat("n", 256)
		r := newReferring(t, h, `{"`+name+`":1,"`+name+`n":1}`)
		got, err := r.refer(t, `{"x":"#CTX:`+name+`"}`)
		require.NoError(t, err)
		require.Equal(t, `{"x":1}`, got)
		_, err = r.refer(t, `{"x":"#CTX:`+name+`n"}`)
		refused(t, err, "256 bytes")
	})

	rule(t, "OutputsAreReadOnceAndUpToABound", func(t *testing.T, h *house) {
		r := newReferring(t, h, "{}")
		large := `{"a":{"b":1},"rest":"` + strings.Repeat("x", 5<<20) + `"}`
		first, second := r.ended(t, large), r.ended(t, large)
		got, err := r.refer(t, `{"a":"#REF:`+first+`:a","b":"#REF:`+first+`:a.b"}`)
		require.NoError(t, err)
		require.Equal(t, `{"a":{"b":1},"b":1}`, got)
		_, err = r.refer(t, `{"a":"#REF:`+first+`:a","b":"#REF:`+second+`:a"}`)
		refused(t, err, "the outputs that the parameters refer to are longer than 8388608 bytes together")
		_, err = r.refer(t, `{"a":["#REF:`+first+`:a"`+strings.Repeat(`,"#REF:`+first+`:a"`, 12)+`]}`)
		refused(t, err, "lead through more than 67108864 bytes of JSON")
	})

	rule(t, "ThereAre64", func(t *testing.T, h *house) {
		r := newReferring(t, h, `{"a":1}`)
		_, err := r.refer(t, `{"a":["#CTX:a"`+strings.Repeat(`,"#CTX:a"`, 63)+`]}`)
		require.NoError(t, err)
		_, err = r.refer(t, `{"a":["#CTX:a"`+strings.Repeat(`,"#CTX:a"`, 64)+`]}`)
		refused(t, err, "more than 64 references")
	})
}

// TestReferencesStandFor: what the document leaves open.
func TestReferencesStandFor(t *testing.T) {
	t.Parallel()

	rule(t, "OfMembersWithOneNameTheLastOneCounts", func(t *testing.T, h *house) {
		r := newReferring(t, h, "{}")
		task := r.ended(t, `{"a":{"b":1},"a":{"b":[2,{"c":1,"c":2}],"d":null},"x":[{"b":3}]}`)
		got, err := r.refer(t, `{"b":"#REF:`+task+`:a.b","d":"#REF:`+task+`:a.d"}`)
		require.NoError(t, err)
		require.Equal(t, `{"b":[2,{"c":1,"c":2}],"d":null}`, got)
		for _, path := range []string{"a.b.c", "x.b", "b", "a.b.", "."} {
			_, err = r.refer(t, `{"b":"#REF:`+task+`:`+path+`"}`)
			refused(t, err, "has no")
		}
	})

	rule(t, "WhatIsNoJSONHasNoMembers", func(t *testing.T, h *house) {
		r := newReferring(t, h, "{}")
		for _, output := range []string{"", "text", `{"a":1`, `{"a":1} {"a":2}`, `{"a":1}}`, `[{"a":1}]`} {
			_, err := r.refer(t, `{"x":"#REF:`+r.ended(t, output)+`:a"}`)
			refused(t, err, "has no")
		}
	})

	rule(t, "ARepeatedRequestIsAnsweredAsItWas", func(t *testing.T, h *house) {
		r := newReferring(t, h, `{"a":1}`)
		sub := orchestrator.Submission{
			Capabilities: []string{"code_write"}, Session: r.session, RequestID: "r", Parameters: json.RawMessage(`{"x":"#CTX:a"}`),
		}
		first, err := r.Submit(t.Context(), ops(), sub, nil)
		require.NoError(t, err)
		_, err = r.Complete(t.Context(), "w-1", first.Task.ID, orchestrator.Result{})
		require.NoError(t, err)
		_, err = r.CloseSession(t.Context(), r.session) // which takes nothing any more
		require.NoError(t, err)
		again, err := r.Submit(t.Context(), ops(), sub, nil)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, first.Task.ID, again.Task.ID)
		sub.RequestID = ""
		_, err = r.Submit(t.Context(), ops(), sub, nil)
		require.True(t, errs.Is(err, errs.TaskState), "%v", err)
	})

	rule(t, "APartOfATaskRefersToItsSession", func(t *testing.T, h *house) {
		r := newReferring(t, h, `{"a":1}`)
		source := r.submit(t, "code_write", func(s *orchestrator.Submission) { s.Session = r.session })
		out, err := r.HandOff(t.Context(), models.Principal{TokenID: "another"}, "w-1", source.ID, orchestrator.Submission{
			Capabilities: []string{"code_write"}, Parameters: json.RawMessage(`{"x":"#CTX:a"}`),
		})
		require.NoError(t, err)
		d, err := r.Detail(t.Context(), out.Task.ID)
		require.NoError(t, err)
		require.JSONEq(t, `{"x":1}`, string(d.Input.Parameters))
	})

	rule(t, "NobodyRefersToTheSessionOfAnother", func(t *testing.T, h *house) {
		r := newReferring(t, h, `{"a":1}`)
		_, err := r.Submit(t.Context(), models.Principal{TokenID: "another"}, orchestrator.Submission{
			Capabilities: []string{"code_write"}, Session: r.session, Parameters: json.RawMessage(`{"x":"#CTX:nothing"}`),
		}, nil)
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
	})
}
