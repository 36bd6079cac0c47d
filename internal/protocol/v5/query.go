package v5

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// handleQuery takes Q: who is there (PROTOCOL_V5 §12.4), what a reference stands for, page by
// page, or where a task is.
func (p *Protocol) handleQuery(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if text, ok := m.Data.Get("ref"); ok {
		return p.readReference(ctx, s, m, text)
	}
	if _, ok := m.Data.Pair("filter"); !ok {
		if tid, named := m.Task.Number(); named && tid > 0 {
			return p.taskStatus(ctx, s, m)
		}
	}
	return p.listWorkers(ctx, m)
}

// The bounds of a roll.
const (
	workerBatch = 500
	// workersPerPage is how many names fit into DATA beside the other pairs.
	workersPerPage = 15
)

// listWorkers lists workers, with filter=W*, W3 or G8 (the agents of sphere 8), status=active,
// online, busy or offline, and capability=. More than fit into DATA come in pages.
func (p *Protocol) listWorkers(ctx context.Context, m wire.Message) (protocol.Reply, error) {
	page, err := intPair(m.Data, "page", 1, math.MaxInt32, 1)
	if err != nil {
		return protocol.Reply{}, err
	}
	wanted, err := parseWorkerFilter(m.Data)
	if err != nil {
		return protocol.Reply{}, err
	}
	var found []int64
	for after := ""; ; {
		workers, err := p.orchestrator.Workers(ctx, after, workerBatch)
		if err != nil {
			return protocol.Reply{}, err
		}
		for _, w := range workers {
			after = w.AgentID
			n, err := p.orchestrator.AgentNumber(ctx, w.AgentID)
			if err != nil {
				return protocol.Reply{}, err
			}
			agent, err := p.orchestrator.Agent(ctx, w.AgentID)
			if err != nil {
				return protocol.Reply{}, err
			}
			if agent.IsActive && wanted(n, w, agent) {
				found = append(found, n)
			}
		}
		if len(workers) < workerBatch {
			break
		}
	}
	slices.Sort(found)
	pages := max((len(found)+workersPerPage-1)/workersPerPage, 1)
	if page > pages {
		return protocol.Reply{}, errorf(wire.E10, "", "page %d is behind the last one, %d", page, pages)
	}
	w := new(wire.Writer)
	var names []wire.Address
	for _, n := range found[(page-1)*workersPerPage : min(page*workersPerPage, len(found))] {
		names = append(names, wire.NthWorker(int(n)))
	}
	if len(names) > 0 {
		w.Agents(names...)
	}
	if w.Number("count", int64(len(found))); pages > 1 {
		w.Number("page", int64(page)).Number("of", int64(pages))
	}
	return p.reply(m, wire.Success, wire.Done, w, true)
}

// parseWorkerFilter reads which workers are asked for.
func parseWorkerFilter(data wire.Data) (func(n int64, w models.Worker, a models.Agent) bool, error) {
	who := wire.Address{Role: wire.Workers}
	if text, ok := data.Get("filter"); ok {
		var err error
		if who, err = wire.ParseAddress(text); err != nil {
			return nil, err
		}
	}
	status, _ := data.Get("status")
	switch status {
	case "", "all", "active", "online", "busy", "offline":
	default:
		return nil, errorf(wire.E10, "", "status must be active, online, busy, offline or all, not %s", status)
	}
	capability, hasCapability := data.Get("capability")
	return func(n int64, w models.Worker, a models.Agent) bool {
		switch {
		case who.Role == wire.Worker && wire.NthWorker(int(n)) != who,
			who.Role == wire.Group && a.SphereID != nil && *a.SphereID != int(who.Number),
			who.Role == wire.Group && a.SphereID == nil,
			who.Role == wire.Orchestrator || who.Role == wire.Router || who.Role == wire.User:
			return false
		case status == "active" && w.State == models.WorkerOffline,
			status == "online" && w.State != models.WorkerOnline,
			status == "busy" && w.State != models.WorkerBusy,
			status == "offline" && w.State != models.WorkerOffline:
			return false
		}
		return !hasCapability || slices.ContainsFunc(a.Capabilities, func(c string) bool {
			return models.CapabilityKey(c) == models.CapabilityKey(capability)
		})
	}, nil
}

// taskStatus tells an asker where a task is, as the line that it would get by itself, or the
// last one it got; and at a DEPTH where a part of it is.
func (p *Protocol) taskStatus(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.queriedTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	if m.Depth == 0 && !s.owns(t) && (s.agentID == "" || t.AgentID != s.agentID) {
		return protocol.Reply{}, errorf(wire.E40, "", "there is no task %s in %s", m.Task, m.Context)
	}
	return p.statusReply(ctx, s, t)
}

// pageRunes is how many characters of a text are on a page, and pageBytes how many bytes
// of one that DATA cannot say, which is in Base64.
const (
	pageRunes = 150
	pageBytes = 108
	// maxReadable is how much of a text can be fetched, in bytes; the rest is for REST.
	maxReadable = 8 << 20
)

// readReference answers with a page of what a reference stands for: ref=T1:raw;page=2 (decisions:
// “fetched with Q”). Text that DATA can hold comes as it is; other text has
// enc=base64.
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
	if ref.Kind == wire.RefMessage {
		value, err := p.readMessageReference(ctx, s, m, ref.Number)
		if err != nil {
			return protocol.Reply{}, err
		}
		return p.pageReply(m, paginate(value), page)
	}
	if tid, ok := m.Task.Number(); ref.Kind == wire.RefContext && (!ok || tid == 0) {
		value, err := p.contextFact(ctx, s, m.Context, ref.Field)
		if err != nil {
			return protocol.Reply{}, err
		}
		return p.pageReply(m, paginate(value), page)
	}
	t, about, err := p.referencedTask(ctx, s, m, ref)
	if err != nil {
		return protocol.Reply{}, err
	}
	if ref.Kind == wire.RefTask {
		all, err := p.cachedTaskField(ctx, t, about, ref.Field)
		if err != nil {
			return protocol.Reply{}, err
		}
		return p.pageReply(m, all, page)
	}
	value, err := p.sessionFact(ctx, t, ref.Field)
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.pageReply(m, paginate(value), page)
}

// pageReply answers with a page of a text.
func (p *Protocol) pageReply(m wire.Message, all pagedText, page int) (protocol.Reply, error) {
	w, err := all.writePage(page)
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.reply(m, wire.Success, wire.Done, w, true)
}

// sessionFact is what the session of a task has under a key.
func (p *Protocol) sessionFact(ctx context.Context, t models.Task, key string) (string, error) {
	session, err := p.orchestrator.Session(ctx, t.SessionID)
	if err != nil && !isNotFound(err) {
		return "", err
	}
	if value, ok := resultField(string(session.Facts), key); ok && err == nil {
		return value, nil
	}
	return "", errorf(wire.E43, "", "the session has no fact %s", key)
}

// mayRead reports whether somebody may read what belongs to a task: whoever asked for
// it, and the agents that have, or had, a part in its session.
func (p *Protocol) mayRead(ctx context.Context, s sender, t models.Task) (bool, error) {
	if s.owns(t) || t.AgentID == s.agentID && s.agentID != "" {
		return true, nil
	}
	if s.agentID == "" {
		return false, nil
	}
	orders, err := p.orchestrator.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return false, err
	}
	for _, o := range orders {
		if o.Task.SessionID != "" && o.Task.SessionID == t.SessionID {
			return true, nil
		}
		if root, err := p.rootTask(ctx, o.Task); err != nil || root.ID == t.ID {
			return err == nil, err
		}
	}
	attempts, err := p.orchestrator.Attempts(ctx, t.ID)
	return slices.ContainsFunc(attempts, func(a models.Attempt) bool { return a.AgentID == s.agentID }), err
}

// fitsData reports whether every page of a text can be said in DATA.
func fitsData(text string) bool {
	if !utf8.ValidString(text) || strings.Contains(text, ";auth=") {
		return false
	}
	for _, part := range splitPages(text) {
		if _, err := new(wire.Writer).Quoted("text", part).Data(); err != nil {
			return false
		}
	}
	return true
}

// splitPages cuts a text into pages.
func splitPages(text string) (all []string) {
	n, from := 0, 0
	for i := range text {
		if n == pageRunes {
			all, from, n = append(all, text[from:i]), i, 0
		}
		n++
	}
	if from < len(text) {
		all = append(all, text[from:])
	}
	return all
}

// taskField is the text that a field of a task's reference stands for: its result for raw
// and S, its state for state, also before it has ended, what it was given for params, its
// log for log, what ownField has, what its worker was told last for answer, unless it has
// ended with such a pair, and otherwise a pair of its result, or a member where that is JSON.
// The result of a task that has not ended is E43, which says so of the task by its name.
func (p *Protocol) taskField(ctx context.Context, t models.Task, name wire.Task, field string) (string, error) {
	switch field {
	case "params":
		order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
		return string(order.Input.Parameters), err
	case "log":
		return p.taskOutput(ctx, t, models.StreamLog)
	case "state": // as it is, also before the end
		return string(t.State), nil
	}
	switch {
	case t.State.Ended():
	case field == fieldAnswer:
		return p.lastAnswer(ctx, t)
	default:
		return "", errorf(wire.E43, "", "%s has not ended", name)
	}
	if value, ok := coreTaskField(t, field); ok {
		return value, nil
	}
	if value, ok := fieldOfPieces(t, field); ok {
		return value, nil
	}
	text, err := p.taskOutput(ctx, t, models.StreamResult)
	if err != nil || field == "" || field == "raw" || field == "S" {
		return text, err
	}
	if value, ok := resultField(text, field); ok {
		return value, nil
	}
	if field == fieldAnswer {
		return p.lastAnswer(ctx, t)
	}
	return "", errorf(wire.E43, "", "the result has no %s", field)
}

// coreTaskField is what a reference reads of a task that has ended itself, and not in its result:
// as in the parameters of a request.
func coreTaskField(t models.Task, field string) (string, bool) {
	switch {
	case field == "tokens":
		return strconv.FormatInt(t.Tokens, 10), true
	case field == "error":
		return t.Error, true
	case field == "exit_code" && t.ExitCode != nil:
		return strconv.Itoa(*t.ExitCode), true
	}
	return "", false
}

// taskOutput reads what a task has put out.
func (p *Protocol) taskOutput(ctx context.Context, t models.Task, stream models.OutputStream) (string, error) {
	var b strings.Builder
	err := p.orchestrator.OutputOf(ctx, t, stream, 0, func(o models.OutputChunk) error {
		if b.Len()+len(o.Data) > maxReadable {
			return errs.New(errs.LimitReached, "the text is longer than %d bytes; GET /api/v1/tasks/%s/output has it", maxReadable, t.ID)
		}
		b.Write(o.Data)
		return nil
	})
	return b.String(), err
}
