package v5

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5/references"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

const (
	// pageRunes is the number of characters on a page, and pageBytes the number of bytes on a
	// page of Base64, for text that DATA cannot hold.
	pageRunes = 150
	pageBytes = 108
	// maxReadable is the number of bytes of a text that Q can read; REST has the rest.
	maxReadable = 8 << 20
	// The page cache holds maxCachedTexts texts, of those longer than minCachedBytes.
	maxCachedTexts = 4
	minCachedBytes = 4 << 10
)

// resolver returns the resolver of a request in a context, 0 for a new one.
func (p *Protocol) resolver(s sender, contextID int64) orchestrator.Resolver {
	return references.Resolver{Translate: func(ctx context.Context, text string, read references.ReadOutput) (string, bool, error) {
		return p.translateReference(ctx, s, contextID, text, read)
	}}
}

// translateReference translates a reference of a request. A reference to a result gets the task's
// id, and the core resolves it; one to a message, or to a field that only this protocol can read,
// is replaced by its value.
func (p *Protocol) translateReference(ctx context.Context, s sender, contextID int64, text string, read references.ReadOutput) (translated string, isValue bool, err error) {
	ref, err := wire.ParseRef(text)
	if err == nil && ref.Number != 0 {
		translated, err = p.messageByNumber(ctx, s, contextID, ref.Number)
		return translated, true, err
	}
	tid, ok := ref.Task.Number()
	if err != nil || !ok {
		return text, false, err
	}
	t, err := p.taskByShortID(ctx, shortid.ID{Context: contextID, Task: tid})
	if err != nil {
		return "", false, notFoundAs(err, codes.E43, "there is no task %s in the session", ref.Task)
	}
	if !t.State.Ended() {
		return "", false, errorf(codes.E43, "", "%s has not ended", ref.Task)
	}
	switch ref.Field {
	case "", "S", "raw", "result", "state", "exit_code", "error", "tokens", "log":
		return "#REF:" + t.ID + ":" + ref.Field, false, nil
	}
	translated, err = p.taskField(ctx, t, ref.Task, ref.Field, read)
	return translated, true, err
}

// readReference replies to a Q with a page of what a reference refers to: ref=T1:raw;page=2
// (decisions: “fetched with Q”).
func (p *Protocol) readReference(ctx context.Context, s sender, m wire.Message, text string) (protocol.Reply, error) {
	page, err := intPair(m.Data, "page", 1, math.MaxInt32, 1)
	if err != nil {
		return protocol.Reply{}, err
	}
	if !wire.IsRef(text) {
		text = "#REF:" + text
	}
	ref, err := wire.ParseRef(text)
	if err != nil {
		return protocol.Reply{}, err
	}
	all, err := p.referencedText(ctx, s, m, ref)
	if err != nil {
		return protocol.Reply{}, err
	}
	w, err := all.writePage(page)
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.reply(m, wire.Success, wire.Done, w, true)
}

// referencedText returns the text that a reference in a Q refers to.
func (p *Protocol) referencedText(ctx context.Context, s sender, m wire.Message, ref wire.Ref) (pagedText, error) {
	if ref.Number != 0 {
		value, err := p.readMessageReference(ctx, s, m, ref.Number)
		return paginate(value), err
	}
	if tid, ok := m.Task.Number(); ref.Context && (!ok || tid == 0) {
		value, err := p.contextFact(ctx, s, m.Context, ref.Field)
		return paginate(value), err
	}
	t, name, err := p.referencedTask(ctx, s, m, ref)
	if err != nil {
		return pagedText{}, err
	}
	if !ref.Context {
		return p.cachedTaskField(ctx, t, name, ref.Field)
	}
	value, err := p.sessionFact(ctx, t, ref.Field)
	return paginate(value), err
}

// referencedTask returns the task whose field, or whose session's fact, a Q reads, and its name
// in the reference. A task other than that of the Q is at DEPTH 0.
func (p *Protocol) referencedTask(ctx context.Context, s sender, m wire.Message, ref wire.Ref) (models.Task, wire.Task, error) {
	about := m
	if about.Task = cmp.Or(ref.Task, m.Task); ref.Context {
		about.Depth = 0 // all subtasks are in one session
	}
	if tid, ok := m.Task.Number(); ok && tid > 0 && about.Task != m.Task {
		about.Depth = 0
	}
	t, err := p.queriedTask(ctx, s, about)
	if err != nil || about.Depth > 0 {
		return t, about.Task, err
	}
	ok, err := p.mayRead(ctx, s, t)
	switch {
	case err == nil && !ok:
		err = errorf(codes.E43, "", "there is no %s for %s", ref, s.address)
	case err == nil && ref.Field == keyAnswer && t.AgentID == "": // each of several workers has its own
		t, err = p.workerCopy(ctx, s, t)
	}
	return t, about.Task, err
}

// mayRead reports whether a sender may read a task: its requester, its workers, and the agents
// with a task in its session.
func (p *Protocol) mayRead(ctx context.Context, s sender, t models.Task) (bool, error) {
	if s.owns(t) || t.AgentID == s.agentID && s.agentID != "" {
		return true, nil
	}
	if s.agentID == "" {
		return false, nil
	}
	open, err := p.orchestrator.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return false, err
	}
	for _, o := range open {
		if o.Task.SessionID != "" && o.Task.SessionID == t.SessionID {
			return true, nil
		}
		if root, err := p.rootTask(ctx, o.Task); err != nil || root.ID == t.ID {
			return err == nil, err
		}
	}
	return p.worksOn(ctx, s.agentID, t.ID)
}

// taskField returns what a field of a reference to a task refers to: the result for raw and S,
// the parameters for params, the log for log, the state for state, fields of the task, the last
// answer to the worker for answer, and otherwise a pair or JSON member of the result. Before the
// task has ended all but params, log, state and answer are E43. It reads outputs with read.
func (p *Protocol) taskField(ctx context.Context, t models.Task, name wire.Task, field string, read references.ReadOutput) (string, error) {
	switch field {
	case "params":
		order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
		return string(order.Input.Parameters), err
	case "log":
		return read(ctx, t, models.StreamLog)
	case "state":
		return string(t.State), nil
	}
	switch {
	case t.State.Ended():
	case field == keyAnswer:
		return p.lastAnswer(ctx, t)
	default:
		return "", errorf(codes.E43, "", "%s has not ended", name)
	}
	if value, ok := coreTaskField(t, field); ok {
		return value, nil
	}
	if value, ok := fieldOfPieces(t, field); ok {
		return value, nil
	}
	text, err := read(ctx, t, models.StreamResult)
	if err != nil || field == "" || field == "raw" || field == "S" {
		return text, err
	}
	if value, ok := resultField(text, field); ok {
		return value, nil
	}
	if field == keyAnswer {
		return p.lastAnswer(ctx, t)
	}
	return "", errorf(codes.E43, "", "the result has no %s", field)
}

// coreTaskField returns a field of a task that has ended, as opposed to one of its result.
func coreTaskField(t models.Task, field string) (string, bool) {
	switch {
	case field == "tokens":
		return strconv.FormatInt(t.Tokens, 10), true
	case field == "error":
		return t.Error, true
	case field == keyExit && t.ExitCode != nil:
		return strconv.Itoa(*t.ExitCode), true
	}
	return "", false
}

// fieldOfPieces returns a field of the S of a result in pieces; S is all of its DATA.
func fieldOfPieces(t models.Task, field string) (string, bool) {
	data := dataOfPieces(t)
	if data == "" || field == "raw" || field == "" {
		return "", false
	}
	if field == "S" {
		return string(data), true
	}
	return data.Get(field)
}

// resultField returns a field of a result: a member by its path with full stops where the result
// is a JSON object, and otherwise the value of a pair.
func resultField(text, field string) (string, bool) {
	value := jsontext.Value(text)
	if !value.IsValid() || value.Kind() != '{' {
		return wire.Data(text).Get(field)
	}
	if value = references.Member(text, field); value == nil {
		return "", false
	}
	var plain string
	if json.Unmarshal(value, &plain) == nil {
		return plain, true
	}
	return string(value), true
}

// taskOutput reads a task's output, up to maxReadable bytes.
func (p *Protocol) taskOutput(ctx context.Context, t models.Task, stream models.OutputStream) (string, error) {
	var b strings.Builder
	err := p.orchestrator.Output(ctx, t, stream, 0, func(o models.OutputChunk) error {
		if b.Len()+len(o.Data) > maxReadable {
			return errs.New(errs.LimitReached, "the text is longer than %d bytes; GET /api/v1/tasks/%s/output has it", maxReadable, t.ID)
		}
		b.Write(o.Data)
		return nil
	})
	return b.String(), err
}

// cachedTaskField returns taskField in pages.
func (p *Protocol) cachedTaskField(ctx context.Context, t models.Task, name wire.Task, field string) (pagedText, error) {
	// The parameters of a task never change, the rest does not change after its end.
	cacheable := field == "params" || t.State.Ended()
	key := t.ID + "/" + strconv.FormatInt(t.Version, 10) + "/" + field
	if all, ok := p.pageCache.Get(key); ok && cacheable {
		return all, nil
	}
	text, err := p.taskField(ctx, t, name, field, p.taskOutput)
	if err != nil {
		return pagedText{}, err
	}
	all := paginate(text)
	if cacheable && len(text) > minCachedBytes {
		p.pageCache.Add(key, all)
	}
	return all, nil
}

// pagedText is a text in pages, which are sent in Base64 unless DATA can hold every page.
type pagedText struct {
	pages []string
	plain bool
}

func paginate(text string) pagedText {
	all := pagedText{pages: splitPages(text)}
	if all.plain = isPlain(text, all.pages); !all.plain {
		all.pages = nil
		for rest := text; len(rest) > 0; rest = rest[min(pageBytes, len(rest)):] {
			all.pages = append(all.pages, rest[:min(pageBytes, len(rest))])
		}
	}
	if len(all.pages) == 0 {
		all.pages = []string{""} // an empty text has one page
	}
	return all
}

// splitPages cuts a text after every pageRunes characters.
func splitPages(text string) (pages []string) {
	n, from := 0, 0
	for i := range text {
		if n == pageRunes {
			pages, from, n = append(pages, text[from:i]), i, 0
		}
		n++
	}
	if from < len(text) {
		pages = append(pages, text[from:])
	}
	return pages
}

// isPlain reports whether DATA can hold every page of a text.
func isPlain(text string, pages []string) bool {
	if !utf8.ValidString(text) || strings.Contains(text, ";auth=") {
		return false
	}
	for _, page := range pages {
		if _, err := new(wire.Writer).Quoted(keyText, page).Data(); err != nil {
			return false
		}
	}
	return true
}

// writePage writes a page, from 1.
func (t pagedText) writePage(n int) (*wire.Writer, error) {
	if n > len(t.pages) {
		return nil, errorf(codes.E10, "", "page %d is beyond the last one, %d", n, len(t.pages))
	}
	w := new(wire.Writer).Number("page", int64(n)).Number("of", int64(len(t.pages)))
	if t.plain {
		return w.Quoted(keyText, t.pages[n-1]), nil
	}
	return w.Add(keyEnc, "base64").Add(keyText, base64.StdEncoding.EncodeToString([]byte(t.pages[n-1]))), nil
}
