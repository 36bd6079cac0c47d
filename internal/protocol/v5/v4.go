package v5

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// V4 is used in two ways. A worker that joins with version=V4 receives only messages of eight
// segments (PROTOCOL_V5 §1.2, §14.3), and a message of eight segments is answered with eight
// (§14.2). In between everything is V5: a V4 message is parsed as V5, and a reply is converted
// last. Only the task of a message is found in another way, because V4 has no CTX.
//
// Nearly every task is the first in its session, T1. In V4, which has no session, two successive
// tasks would have the same name, and a late result of one would be taken for that of the other.
// So a task has a TID of its own in V4: that of the first task of a session is the number of the
// session, and the steps to further tasks and depths are large, so that only distant sessions
// share a TID.
const (
	taskStepV4  = 37
	depthStepV4 = 331
)

const (
	// concurrencyV4 is the concurrency of a V4 worker, so that it cannot confuse two tasks.
	concurrencyV4 = 1
	// maxRecentTasks is the number of a V4 worker's latest tasks among which an ended task is
	// searched.
	maxRecentTasks = 20
)

// isV4 reports whether the first line of a text has the segments of V4.
func isV4(raw []byte) bool {
	line, _, _ := bytes.Cut(raw, []byte{'\n'})
	return bytes.Count(line, []byte{'|'}) == wire.SegmentsV4-1
}

// parse parses a message. With v4, one with fewer segments than V5 is a message of V4.
func parse(line string, v4 bool) (wire.Message, error) {
	if v4 && strings.Count(line, "|") < wire.Segments-1 {
		return wire.ParseV4(line)
	}
	return wire.Parse(line)
}

// repliesInV4 reports whether a message is answered in V4: it is one of V4, or of a worker that
// speaks only V4. A join is always V5, and so is its reply (§14.3).
func (p *Protocol) repliesInV4(from models.Principal, raw []byte) bool {
	if isV4(raw) {
		return true
	}
	if from.AgentID == nil || !p.knowsOnlyV4(*from.AgentID) {
		return false
	}
	segments := bytes.SplitN(raw, []byte{'|'}, wire.Segments)
	return len(segments) < wire.Segments || string(segments[2]) != wire.Join.String()
}

// knowsOnlyV4 reports whether an agent has joined as a V4 worker.
func (p *Protocol) knowsOnlyV4(agentID string) bool {
	w := p.orchestrator.CachedWorker(agentID)
	return w.Protocol == Name && w.ProtocolVersion == VersionV4
}

// joinsAsV4 reports whether a join is that of a V4 worker.
func joinsAsV4(join wire.Message) bool {
	v, _ := join.Data.Get("version")
	return strings.EqualFold(v, VersionV4)
}

// resolveTaskV4 finds the task of a V4 message.
func (p *Protocol) resolveTaskV4(ctx context.Context, s *sender, m wire.Message) error {
	s.v4 = true
	if m.Type == wire.Handoff {
		return errorf(codes.E14, "", "V4 has no type X; join with version=V5 to hand work off")
	}
	tid, named := m.Task.Number()
	if !named || tid == 0 || m.Context != "" {
		return nil
	}
	switch {
	case m.Type == wire.Update && m.State == wire.Cancelled,
		m.Type == wire.Clarify && (s.agentID == "" || isAnswer(m.Data)):
		return p.findRequestV4(ctx, s, tid)
	case s.agentID == "":
		return nil
	}
	switch m.Type {
	case wire.Ack, wire.Update, wire.Success, wire.Failure, wire.Clarify:
		return p.findWorkV4(ctx, s, tid)
	}
	return nil
}

// findWorkV4 finds the task of a worker's message among the worker's open tasks, and for a V4
// worker then among its latest tasks.
func (p *Protocol) findWorkV4(ctx context.Context, s *sender, tid int) error {
	open, err := p.orchestrator.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return err
	}
	tasks := make([]models.ListedTask, len(open))
	for i, o := range open {
		tasks[i].Task = o.Task
	}
	onlyV4 := p.knowsOnlyV4(s.agentID)
	found, err := p.filterByTaskV4(ctx, tasks, tid, onlyV4)
	if err == nil && len(found) == 0 && onlyV4 {
		if tasks, err = p.orchestrator.Tasks(ctx, orchestrator.TaskQuery{AgentID: s.agentID, Limit: maxRecentTasks}); err == nil {
			found, err = p.filterByTaskV4(ctx, tasks, tid, onlyV4)
		}
	}
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return errorf(codes.E40, "", "%s has no task T%d", s.address, tid)
	case len(found) > 1 && !onlyV4:
		return errorf(codes.E42, "", "%s has several tasks T%d: state CTX, in a message of V5", s.address, tid)
	}
	s.task = &found[0]
	return nil
}

// filterByTaskV4 returns the tasks with a TID: that of V4 for a V4 worker, and otherwise that in
// the task's session.
func (p *Protocol) filterByTaskV4(ctx context.Context, tasks []models.ListedTask, tid int, onlyV4 bool) (found []models.Task, err error) {
	for _, t := range tasks {
		h, err := p.shortID(ctx, t.Task)
		if err != nil {
			return nil, err
		}
		name := wire.NewTask(h.Task)
		if onlyV4 {
			name = taskV4(wire.Message{Task: name, Context: shortid.ContextName(h.Context), Depth: min(t.Depth, wire.MaxDepth)})
		}
		if name == wire.NewTask(tid) {
			found = append(found, t.Task)
		}
	}
	return found, nil
}

// findRequestV4 finds the task of a requester's message: the newest one with the TID that the
// requester submitted in V4.
func (p *Protocol) findRequestV4(ctx context.Context, s *sender, tid int) error {
	ids, err := shortid.TaskIDsByNumber(ctx, p.store, s.TokenID, tid, maxRecentTasks)
	if err != nil {
		return err
	}
	for _, id := range ids {
		order, err := p.orchestrator.TaskWithInput(ctx, id)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if meta, err := readRequestMeta(order.Input); err == nil && order.Task.Class == Class && meta.V4 {
			s.task = &order.Task
			return nil
		}
	}
	return errorf(codes.E42, "", "%s has no task T%d of V4: state CTX, in a message of V5", s.address, tid)
}

// firstTaskNumberV4 returns the TID in V4 of the first task of a session.
func firstTaskNumberV4(contextID int64) int { return int((contextID-1)%shortid.MaxTask) + 1 }

// taskV4 returns the TID in V4 of the task that a V5 message is about.
func taskV4(m wire.Message) wire.Task {
	n, _ := shortid.ContextNumber(m.Context)
	tid, _ := m.Task.Number()
	return wire.NewTask(firstTaskNumberV4(n + taskStepV4*int64(tid-1) + depthStepV4*int64(m.Depth)))
}

// withShortNames returns a V4 message with the names that its task has in V5, to be logged.
func (p *Protocol) withShortNames(ctx context.Context, s sender, m wire.Message) wire.Message {
	if s.task == nil {
		return m
	}
	if h, err := p.newMessage(ctx, *s.task); err == nil { // otherwise it is not logged
		m.Context, m.Task, m.Depth = h.Context, h.Task, h.Depth
		s.incoming.setContext(m) // resolveTaskV4 has found the task among the sender's own
	}
	return m
}

// replyInVersion converts a reply to V4 where v4 is set.
func (p *Protocol) replyInVersion(v4 bool, reply protocol.Reply) protocol.Reply {
	if !v4 {
		return reply
	}
	var lines [][]byte
	for line := range bytes.SplitSeq(reply.Body, []byte{'\n'}) {
		if len(line) == 0 {
			continue
		}
		m, _ := wire.Parse(string(line)) // Format has written it
		lines = append(lines, []byte(p.formatV4(adaptToV4(m, reply.Location))))
	}
	reply.Body = bytes.Join(lines, []byte{'\n'})
	return reply
}

// renderV4 converts a message to a V4 worker. A request that V4 cannot express fails the attempt,
// and the text is "".
func (p *Protocol) renderV4(ctx context.Context, agent models.Agent, in models.InboxMessage, m wire.Message) (string, error) {
	switch in.Kind {
	case models.MessageAssign:
		data, ok, err := p.requestDataV4(ctx, in.TaskID, m.Data)
		if err != nil {
			return "", err
		}
		if !ok {
			return "", p.failAttemptV4(ctx, agent, in)
		}
		m.Data = data
	case models.MessageReply:
		var err error
		if m.Data, err = answerDataV4(jsonText(in.Data, "answer")); err != nil {
			return "", err
		}
	}
	if in.TaskID != "" && in.Kind != models.MessageTaskEnded { // that is about the agent's own request
		m.Task = taskV4(m)
	}
	return p.formatV4(adaptToV4(m, "/api/v1/tasks/"+in.TaskID)), nil
}

// requestDataV4 returns the DATA of a request without references: the task's parameters hold
// their values. ok is false where DATA cannot hold the parameters.
func (p *Protocol) requestDataV4(ctx context.Context, taskID string, data wire.Data) (out wire.Data, ok bool, err error) {
	if isDataV4(data) {
		return data, true, nil
	}
	order, err := p.orchestrator.TaskWithInput(ctx, taskID)
	if err != nil {
		return "", false, err
	}
	var candidates []wire.Data
	if meta, err := readRequestMeta(order.Input); err == nil && order.Task.Class == Class {
		forwarded, _ := forwardedData(meta.Data, wire.Retry{}) // with the retry pairs it may not have fitted
		candidates = append(candidates, forwarded)
	}
	retry, _ := data.Retry() // O1 has written it
	for _, r := range []wire.Retry{retry, {}} {
		w := callData(order.Input)
		if !writeParameters(w, order.Input.Parameters) {
			break
		}
		if data, err := w.Retry(r).Data(); err == nil {
			candidates = append(candidates, data)
		}
	}
	for _, data := range candidates {
		if data != "" && isDataV4(data) {
			return data, true, nil
		}
	}
	return "", false, nil
}

// failAttemptV4 fails the attempt of a worker to which the request cannot be sent, so that another
// worker is asked: with E31 in the class of V5 and as a limit of the worker in other classes,
// which say nothing about its connection.
func (p *Protocol) failAttemptV4(ctx context.Context, agent models.Agent, in models.InboxMessage) error {
	t, err := p.orchestrator.Task(ctx, in.TaskID)
	if err != nil {
		return err
	}
	name, err := p.agentAddress(ctx, agent.ID)
	if err != nil {
		return err
	}
	failure := orchestrator.FailureResource
	if t.Class == Class {
		failure = orchestrator.FailureSaturated
	}
	_, err = p.orchestrator.Complete(ctx, agent.ID, t.ID, orchestrator.Result{
		Failure: failure, Text: fmt.Sprintf("%s speaks V4, which cannot express the parameters", name),
		MessageID: "v4:" + t.ID + ":" + strconv.Itoa(in.Attempt),
	})
	if errs.Is(err, errs.TaskState) || isNotFound(err) {
		return nil
	}
	return err
}

// formatV4 writes a message that V4 can express. Its number is counted for each receiver, because
// there is no CTX.
func (p *Protocol) formatV4(m wire.Message) string {
	m.Number = p.numbers.next(VersionV4 + " " + m.To.String())
	line, err := m.FormatV4()
	if err != nil {
		p.log.Error("a message cannot be converted to V4", "error", err)
		line, _ = wire.Message{Number: m.Number, From: self, To: m.To, Type: wire.Failure, Task: m.Task, State: wire.Failed, Err: codes.E99, Data: "-"}.FormatV4()
	}
	return line
}

// adaptToV4 replaces what V4 cannot express (PROTOCOL_V5 §14.2): D becomes a worker's question C,
// a hand-off a request of O1, a code that V5 has added E99, and a reference plain text. location
// is the URL of the task, "" for unknown. The signature was that of the V5 message.
func adaptToV4(m wire.Message, location string) wire.Message {
	m.Auth = wire.Auth{}
	m.Err = m.Err.V4()
	switch m.Type {
	case wire.Disambiguate:
		m.Type, m.Data = wire.Clarify, questionDataV4(m.Data)
	case wire.Handoff:
		m.Type, m.State, m.From = wire.Request, wire.New, self
	case wire.Success:
		m.Data = resultDataV4(m.Data, location)
	}
	if !isDataV4(m.Data) { // similar characters replace those of a reference
		m.Data = wire.Data(strings.NewReplacer("#REF:", "＃REF:", "#CTX:", "＃CTX:", "#MSG:", "＃MSG:").Replace(string(m.Data)))
	}
	return m
}

// questionDataV4 converts a question to a user, with opt1= to opt4=, to a worker's question with a
// list of options (§7.1). It stays unchanged where a list cannot hold an option.
func questionDataV4(data wire.Data) wire.Data {
	var options []string
	for pair := range data.Pairs() {
		if strings.HasPrefix(pair.Key, "opt") {
			options = append(options, pair.Value())
		}
	}
	question, _ := data.Get("question")
	listed, err := new(wire.Writer).Add("question", question).List("options", options...).Data()
	if err != nil || len(options) == 0 {
		return data
	}
	return listed
}

// resultDataV4 replaces the reference to a result that DATA cannot hold by its URL.
func resultDataV4(data wire.Data, location string) wire.Data {
	src, _ := data.Get(keySrc)
	size, sized := data.Get("bytes")
	if location == "" || !sized || !wire.IsRef(src) || data != wire.Data("src="+src+";bytes="+size) {
		return data
	}
	out, err := new(wire.Writer).Add("bytes", size).Add("output", location+"/output").Data()
	if err != nil {
		return data
	}
	return out
}

// answerDataV4 returns the DATA of an answer to a V4 worker, which has no references and no Q: a
// long answer is truncated, and similar characters replace what DATA cannot hold.
func answerDataV4(text string) (wire.Data, error) {
	data, err := new(wire.Writer).Add(keyAnswer, text).Data()
	if err != nil || !isDataV4(data) {
		return new(wire.Writer).Text(keyAnswer, text).Data()
	}
	return data, nil
}

// isDataV4 reports whether V4 can express DATA.
func isDataV4(data wire.Data) bool {
	_, err := wire.Message{
		Number: 1, From: self, To: wire.Address{Role: wire.User}, Type: wire.Success, Task: wire.NewTask(1), Data: data,
	}.FormatV4()

	return err == nil
}
