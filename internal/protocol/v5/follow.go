package v5

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/models"
)

func asCodedError(err error, r *codedError) bool { return errors.As(err, r) }

// minQuestionLength is how many characters of DATA are kept for a question beside its options.
const minQuestionLength = 70

// maxOptions is how many answers a user is offered (PROTOCOL_V5 §7.2).
const maxOptions = 4

// acceptedReply says that a request is taken on and, where its asker waits, what came of it: its
// end, or what the user is asked.
func (p *Protocol) acceptedReply(ctx context.Context, s sender, m wire.Message, t models.Task, wait time.Duration) (protocol.Reply, error) {
	w := ackData("accepted", m)
	if names := p.workerNames(ctx, t); len(names) == 1 {
		w.Add("worker", names[0])
	} else if len(names) > 1 {
		w.List("workers", names...)
	}
	a, err := p.reply(m, wire.Ack, wireState(t), w, true)
	if err != nil {
		return a, err
	}
	a.Status, a.Location = http.StatusAccepted, "/api/v1/tasks/"+t.ID
	s.incoming.setContext(m) // all who come here have made the task, or have shown that it is theirs
	s.incoming.log(m)
	p.logFirstReply(ctx, s, a)
	if last, err := p.outcomeReply(ctx, s, t, wait); err != nil { // it is taken on all the same
		p.log.Warn("an asker could not be told what came of it", "task", t.ID, "error", err)
	} else if last.Body != nil {
		a.Body = bytes.Join([][]byte{a.Body, last.Body}, []byte{'\n'})
		a.Status = last.Status
	}
	return a, nil
}

// workerNames are the names of those who have a task.
func (p *Protocol) workerNames(ctx context.Context, t models.Task) (names []string) {
	all := []models.Task{t}
	if t.AgentID == "" && t.State == models.TaskRunning { // several have a part of it
		all, _ = p.orchestrator.Subtasks(ctx, t.ID) // what is said of them is a courtesy
	}
	for _, one := range all {
		if one.AgentID == "" || one.State.Ended() {
			continue
		}
		if name, err := p.agentAddress(ctx, one.AgentID); err == nil {
			names = append(names, name.String())
		}
	}
	return names
}

// outcomeReply waits for what comes of a task, and returns the line that says so: none where it
// goes on.
func (p *Protocol) outcomeReply(ctx context.Context, s sender, t models.Task, wait time.Duration) (protocol.Reply, error) {
	t, err := p.awaitChange(ctx, s, t, wait)
	if err == nil && !t.State.Ended() {
		var asking bool
		if wait > 0 {
			_, asking, err = p.orchestrator.TaskAwaitingReply(ctx, t)
		}
		if !asking {
			return protocol.Reply{}, err
		}
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.statusReply(ctx, s, t)
}

// awaitChange waits until a task has ended, or asks something.
func (p *Protocol) awaitChange(ctx context.Context, s sender, t models.Task, wait time.Duration) (models.Task, error) {
	until := time.Now().Add(wait)
	for left := wait; left > 0 && !t.State.Ended(); left = time.Until(until) {
		_, asking, err := p.orchestrator.TaskAwaitingReply(ctx, t)
		if err != nil || asking || ctx.Err() != nil {
			return t, err
		}
		next, err := p.orchestrator.WaitForChangeOrQuestion(ctx, s.TokenID, t, left)
		if err != nil {
			return t, ignoreBusy(err)
		}
		t = next
	}
	return t, nil
}

// ignoreBusy is nil where only too many wait: then this one does not.
func ignoreBusy(err error) error {
	if errs.Is(err, errs.Busy) {
		return nil
	}
	return err
}

// statusReply is the line that says where a task is: its end, what it asks, or how far it
// is.
func (p *Protocol) statusReply(ctx context.Context, s sender, t models.Task) (protocol.Reply, error) {
	t, asking, err := p.orchestrator.TaskAwaitingReply(ctx, t)
	if err != nil {
		return protocol.Reply{}, err
	}
	m, err := p.newMessage(ctx, t)
	if err != nil {
		return protocol.Reply{}, err
	}
	m.To = s.address
	status := http.StatusOK
	switch {
	case t.State.Ended():
		if err := p.writeOutcome(ctx, &m, t); err != nil {
			return protocol.Reply{}, err
		}
		if m.Err != "" {
			status = endStatus(m.Err)
		}
		if s.owns(t) {
			p.closeSession(ctx, t)
		}
	case asking:
		err = p.writeQuestion(ctx, &m, t)
	default:
		m.Type = wire.Update
		m.Data, err = progressData(t.Progress, t.StepName).Data()
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	line, err := wire.Format(m)
	return protocol.Reply{Status: status, Body: []byte(line), ContentType: contentType, SendBack: true}, err
}

// progressData is the DATA that says how far a task is.
func progressData(percent int, step string) *wire.Writer {
	w := new(wire.Writer).Add("progress", strconv.Itoa(percent)+"%")
	if step != "" {
		w.Text("step", step)
	}
	return w
}

// closeSession ends the session that was made for a request, once its asker has the end of it
// (PROTOCOL_V5 §6.2). Where others of its tasks go on, it stays.
func (p *Protocol) closeSession(ctx context.Context, t models.Task) {
	if t.Class != Class || t.SessionID == "" {
		return
	}
	order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
	if err == nil {
		if kept, bad := readRequestMeta(order.Input); bad != nil || !kept.Closes {
			return
		}
		_, err = p.orchestrator.CloseSession(context.WithoutCancel(ctx), t.SessionID)
	}
	if err != nil && !errs.Is(err, errs.TaskState) && !isNotFound(err) {
		p.log.Warn("a session stays open", "session", t.SessionID, "error", err)
	}
}

// writeQuestion is what a user is asked (PROTOCOL_V5 §7.2).
func (p *Protocol) writeQuestion(ctx context.Context, m *wire.Message, t models.Task) (err error) {
	m.Type = wire.Disambiguate
	asked, err := p.orchestrator.OpenQuestion(ctx, t)
	if err != nil {
		return err
	}
	w := new(wire.Writer)
	offered := asked.Options[:min(len(asked.Options), maxOptions)]
	for i, o := range offered { // which leave room for the question
		w.Text("opt"+strconv.Itoa(i+1), truncate(o, (wire.MaxData-minQuestionLength)/len(offered)-len(`;opt1=""`)))
	}
	opts, err := w.Data()
	if err != nil {
		return err
	}
	// The question comes first and is shortened rather than the options.
	w = new(wire.Writer)
	room := wire.MaxData - len([]rune(string(opts))) - len(`question="";`)
	w.Text("question", truncate(cmp.Or(asked.Text, "?"), room))
	question, err := w.Data()
	if err == nil && len(offered) > 0 {
		question += ";" + opts
	}
	m.Data = question
	return err
}

// truncate cuts a text to a number of characters.
func truncate(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:max(most-1, 0)]) + "…"
	}
	return text
}

// handleAnswer takes a user's C: answer= as it is, or choice=opt2.
func (p *Protocol) handleAnswer(ctx context.Context, s sender, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	t, err := p.requestedTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	asking, waits, err := p.orchestrator.TaskAwaitingReply(ctx, t) // it may be a part of it
	if err != nil {
		return protocol.Reply{}, err
	}
	if !waits {
		return protocol.Reply{}, stateError(errs.New(errs.TaskState, "nothing was asked").With("state", t.State), m)
	}
	text, ok := m.Data.Get("answer")
	if choice, chosen := m.Data.Get("choice"); !ok && chosen {
		asked, err := p.orchestrator.OpenQuestion(ctx, asking)
		if err != nil {
			return protocol.Reply{}, err
		}
		n, err := strconv.Atoi(strings.TrimPrefix(choice, "opt"))
		if err != nil || n < 1 || n > len(asked.Options) {
			return protocol.Reply{}, errorf(wire.E10, "", "choice must be opt1 to opt%d, not %s", len(asked.Options), choice)
		}
		text, ok = asked.Options[n-1], true
	}
	if !ok {
		return protocol.Reply{}, errorf(wire.E10, "", "DATA must have answer, or choice such as choice=opt2")
	}
	if _, err = p.orchestrator.Reply(ctx, asking.ID, text); err != nil {
		return protocol.Reply{}, reportError(err, s, m)
	}
	if t, err = p.orchestrator.Task(ctx, t.ID); err != nil {
		return protocol.Reply{}, err
	}
	return p.acceptedReply(ctx, s, m, t, wait)
}

// handleCancel takes a user's U with the state X (decisions: “Cancel is a U with state X”).
func (p *Protocol) handleCancel(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.requestedTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	why, ok := m.Data.Get("reason")
	if !ok {
		why = "cancelled by the asker"
	}
	if t, err = p.orchestrator.Cancel(ctx, t.ID, why, nil); err != nil {
		return protocol.Reply{}, reportError(err, s, m)
	}
	s.incoming.setContext(m)
	p.closeSession(ctx, t)
	return p.reply(m, wire.Ack, wire.Cancelled, new(wire.Writer).Flag("cancelled"), true)
}

// requestedTask returns the task that a speaker names, which he has to have asked for.
func (p *Protocol) requestedTask(ctx context.Context, s sender, m wire.Message) (models.Task, error) {
	if s.task != nil {
		return *s.task, nil
	}
	t, err := p.namedTask(ctx, m)
	if err == nil && !s.owns(t) {
		err = errorf(wire.E40, "", "there is no task %s in %s", m.Task, m.Context)
	}
	return t, err
}
