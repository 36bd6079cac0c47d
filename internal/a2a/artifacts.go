package a2a

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/input"
	"comet/models"
)

// errGap stops reading a result at bytes that have not arrived.
var errGap = errors.New("the next bytes have not arrived")

// sendOutput sends the part of a result that was not sent yet, chunk by chunk. A result that may not be text is sent when it is
// complete.
func (st *stream) sendOutput(ctx context.Context, t models.Task, last bool) error {
	if t.Attempt != st.at.attempt || t.OutputBytes < st.at.sent || last && t.Output != nil { // another attempt, or another result
		st.at.attempt, st.at.sent = t.Attempt, 0
	}
	switch {
	case t.OutputBytes == 0, !last && t.OutputBytes == st.at.sent:
		return nil
	case last && st.at.sent == 0:
		parts, err := st.result(ctx, t)
		if err != nil {
			return err
		}
		st.at.sent = t.OutputBytes
		return st.emitArtifact(parts, false, true)
	case !last:
		if unaligned, err := st.Orchestrator.HasUnalignedOutput(ctx, t, models.StreamResult); unaligned || err != nil {
			return err
		}
	}
	rest, err := st.sendChunks(ctx, t)
	if err == nil && last {
		err = st.emitText(rest, true)
	}
	return err
}

// sendChunks sends the chunks of a text that have arrived. It returns the beginning of a character at their end.
func (st *stream) sendChunks(ctx context.Context, t models.Task) (rest []byte, err error) {
	at := st.at.sent // the end of rest
	err = st.Orchestrator.Output(ctx, t, models.StreamResult, at, func(o models.OutputChunk) error {
		if o.Start > at || o.End() <= at {
			return errGap
		}
		text := append(rest, o.Data[at-o.Start:]...)
		if st.at.sent == 0 && !isText(text) {
			return errGap
		}
		at = o.End()
		var complete []byte
		if complete, rest = input.SplitRune(text); len(complete) == 0 {
			return nil
		}
		rest = slices.Clone(rest)
		return st.emitText(complete, false)
	})
	if errors.Is(err, errGap) {
		err = nil
	}
	return rest, err
}

// isText reports whether the beginning of a result shows that it is text.
func isText(data []byte) bool {
	t := strings.TrimLeft(string(data), " \t\r\n")
	complete, _ := input.SplitRune(data)
	return t != "" && t[0] != '{' && t[0] != '[' && utf8.Valid(complete)
}

// emitText sends a piece of a text.
func (st *stream) emitText(text []byte, last bool) error {
	appended := st.at.sent > 0
	st.at.sent += int64(len(text))
	return st.emitArtifact(a2a.ContentParts{{Content: a2a.Text(strings.ToValidUTF8(string(text), "\uFFFD")), MediaType: "text/plain"}}, appended, last)
}

func (st *stream) emitArtifact(parts a2a.ContentParts, appended, last bool) error {
	return st.emit(st.at.String(), &a2a.TaskArtifactUpdateEvent{
		TaskID: st.f.info().TaskID, ContextID: st.f.contextID(), Append: appended, LastChunk: last,
		Artifact: &a2a.Artifact{ID: artifactID(st.at.attempt), Name: "result", Parts: parts},
	})
}

// usage returns the metadata of a task with the tokens that it has used, nil for none. Package remote charges them.
func usage(t models.Task) map[string]any {
	if t.Tokens == 0 {
		return nil
	}
	return map[string]any{"usage": map[string]int64{"tokens": t.Tokens}}
}
