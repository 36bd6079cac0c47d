package v5

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

const (
	// maxOptions is the number of options that a user is offered (PROTOCOL_V5 §7.2).
	maxOptions = 4
	// minQuestionLength is the number of characters of DATA that options leave for the question.
	minQuestionLength = 70
)

// acceptedReply replies that a request is accepted and, where its sender waits, adds the outcome
// or the question to the user.
func (p *Protocol) acceptedReply(ctx context.Context, s sender, m wire.Message, t models.Task, wait time.Duration) (protocol.Reply, error) {
	w := ackData("accepted", m)
	if names := p.workerNames(ctx, t); len(names) == 1 {
		w.Add("worker", names[0])
	} else if len(names) > 1 {
		w.List("workers", names...)
	}
	reply, err := p.reply(m, wire.Ack, wireState(t), w, true)
	if err != nil {
		return reply, err
	}
	reply.Status, reply.Location = http.StatusAccepted, "/api/v1/tasks/"+t.ID
	s.incoming.setContext(m) // the sender has made the task, or has shown that it is its own
	s.incoming.logOnce(m)
	if in := s.incoming; in != nil && in.logged && !in.firstReplyLogged { // before messages that are sent meanwhile
		p.logReply(ctx, s, reply)
		in.firstReplyLogged = true
	}
	if last, err := p.outcomeReply(ctx, s, t, wait); err != nil { // the request is accepted all the same
		p.log.Warn("the outcome of a task could not be sent with the reply", "task", t.ID, "error", err)
	} else if last.Body != nil {
		reply.Body = bytes.Join([][]byte{reply.Body, last.Body}, []byte{'\n'})
		reply.Status = last.Status
	}
	return reply, nil
}

// workerNames returns the addresses of the workers that execute a task. Errors are ignored: the
// names are only information.
func (p *Protocol) workerNames(ctx context.Context, t models.Task) (names []string) {
	all := []models.Task{t}
	if t.AgentID == "" && t.State == models.TaskRunning { // several workers execute it
		all, _ = p.orchestrator.Subtasks(ctx, t.ID)
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

// outcomeReply waits for a task and returns the message with its outcome or question, or the zero
// Reply if the task continues.
func (p *Protocol) outcomeReply(ctx context.Context, s sender, t models.Task, wait time.Duration) (protocol.Reply, error) {
	if wait > 0 && !t.State.Ended() {
		next, closed, err := p.orchestrator.WaitForQuestion(ctx, s.TokenID, t.ID, wait, s.closesSession)
		switch {
		case err == nil:
			t, s.closedSession = next, closed
		case !errs.Is(err, errs.Busy): // with Busy, too many requests wait, so this one does not
			return protocol.Reply{}, err
		}
	}
	if !t.State.Ended() {
		if wait <= 0 {
			return protocol.Reply{}, nil
		}
		if _, asking, err := p.orchestrator.TaskAwaitingReply(ctx, t); err != nil || !asking {
			return protocol.Reply{}, err
		}
	}
	return p.statusReply(ctx, s, t)
}

// statusReply replies with the status of a task: its outcome, its question, or its progress.
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
			status = outcomeStatus(m.Err)
		}
		if s.owns(t) && !s.closedSession {
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
	line, err := m.Format()
	return protocol.Reply{Status: status, Body: []byte(line), ContentType: contentType, SendBack: true}, err
}

func progressData(percent int, step string) *wire.Writer {
	w := new(wire.Writer).Add("progress", strconv.Itoa(percent)+"%")
	if step != "" {
		w.Text("step", step)
	}
	return w
}

// writeOutcome makes m the message with a task's outcome: S with its result, E with its error, or
// U with the state X for a cancelled task.
func (p *Protocol) writeOutcome(ctx context.Context, m *wire.Message, t models.Task) (err error) {
	switch t.State {
	case models.TaskDone:
		m.Type = wire.Success
		m.Data, err = p.resultData(ctx, m.Task, t)
	case models.TaskCancelled:
		m.Type = wire.Update
		m.Data, err = new(wire.Writer).Text(keyReason, t.Error).Data()
	default:
		m.Type = wire.Failure
		report := reportOf(t)
		m.Err = errorCode(t, report)
		m.Data, err = failureData(m.Err, report, m.Task, t)
	}
	return err
}

// failureData returns the DATA of an E: that of the worker's E, where it reported one.
func failureData(code codes.Code, report storedReport, tid wire.Task, t models.Task) (wire.Data, error) {
	w := new(wire.Writer)
	switch {
	case report.Code == code && report.Data != "":
		return report.Data, nil
	case code == codes.E17:
		have := int64(0)
		if t.Budget != nil {
			have = max(*t.Budget-t.Tokens, 0)
		}
		return w.Text("desc", code.Meaning()).Number("have", have).Data()
	case code == codes.E20:
		return w.Text("desc", code.Meaning()).Text("details", "the task did not end within expires_in= seconds").Data()
	}
	w.Text("desc", code.Meaning())
	if t.ExitCode != nil && *t.ExitCode > 0 {
		w.Number(keyExit, int64(*t.ExitCode))
	}
	if t.OutputBytes > 0 {
		w.Ref(keySrc, rawRef(tid)).Number("bytes", t.OutputBytes)
	}
	return w.Text("details", t.Error).Data()
}

// resultData returns the DATA of an S: the result where DATA can hold it, and otherwise a
// reference that Q reads.
func (p *Protocol) resultData(ctx context.Context, tid wire.Task, t models.Task) (wire.Data, error) {
	if data := dataOfPieces(t); data != "" {
		return data, nil
	}
	if t.OutputBytes <= 4*wire.MaxData {
		text, err := p.taskOutput(ctx, t, models.StreamResult)
		if err != nil {
			return "", err
		}
		if text = strings.TrimRight(text, "\r\n"); text == "" {
			return "-", nil
		}
		if isData(text) {
			return wire.Data(text), nil
		}
	}
	return new(wire.Writer).Ref(keySrc, rawRef(tid)).Number("bytes", t.OutputBytes).Data()
}

// isData reports whether a text can be the DATA of a message unchanged.
func isData(text string) bool {
	line, err := wire.Message{
		Number: 1, From: self, To: wire.Address{Role: wire.User}, Type: wire.Success, Task: wire.NewTask(1), Data: wire.Data(text),
	}.Format()

	return err == nil && strings.HasSuffix(line, "|"+text)
}

// writeQuestion makes m the D that asks a user (§7.2).
func (p *Protocol) writeQuestion(ctx context.Context, m *wire.Message, t models.Task) (err error) {
	m.Type = wire.Disambiguate
	question, err := p.orchestrator.OpenQuestion(ctx, t)
	if err != nil {
		return err
	}
	w := new(wire.Writer)
	offered := question.Options[:min(len(question.Options), maxOptions)]
	for i, o := range offered {
		w.Text("opt"+strconv.Itoa(i+1), truncate(o, (wire.MaxData-minQuestionLength)/len(offered)-len(`;opt1=""`)))
	}
	options, err := w.Data()
	if err != nil {
		return err
	}
	// The question comes first, but is truncated to leave space for the options.
	space := wire.MaxData - utf8.RuneCountInString(string(options)) - len(`question="";`)
	m.Data, err = new(wire.Writer).Text("question", truncate(cmp.Or(question.Text, "?"), space)).Data()
	if err == nil && len(offered) > 0 {
		m.Data += ";" + options
	}
	return err
}

// truncate cuts a text to a number of characters.
func truncate(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:max(limit-1, 0)]) + "…"
	}
	return text
}
