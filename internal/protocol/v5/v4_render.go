package v5

import (
	"context"
	"fmt"
	"strconv"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// renderV4 puts what a worker of V4 is told into V4. Work that V4 cannot say is not given
// to it by half: its attempt fails, and there is nothing to tell.
func (p *Protocol) renderV4(ctx context.Context, agent models.Agent, m models.InboxMessage, lines [][]byte) ([][]byte, error) {
	for i, line := range lines {
		out, err := wire.Parse(string(line))
		if err != nil {
			return nil, err
		}
		if m.Kind == models.MessageAssign {
			data, ok, err := p.requestDataV4(ctx, m.TaskID, out.Data)
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, p.failAttemptV4(ctx, agent, m)
			}
			out.Data = data
		}
		if m.Kind == models.MessageReply {
			if out.Data, err = answerDataV4(jsonText(m.Data, "answer")); err != nil {
				return nil, err
			}
		}
		if m.TaskID != "" && m.Kind != models.MessageTaskEnded { // which is about what it asked for itself
			out.Task = taskV4(out)
		}
		lines[i] = p.formatV4(adaptToV4(out, "/api/v1/tasks/"+m.TaskID))
	}
	return lines, nil
}

// requestDataV4 is the DATA of a request without references: what they stand for is in the
// parameters of the task. ok is false where DATA cannot say those, or has no room for them.
func (p *Protocol) requestDataV4(ctx context.Context, taskID string, data wire.Data) (said wire.Data, ok bool, err error) {
	if !isUnencodableV4(data) {
		return data, true, nil
	}
	order, err := p.orchestrator.TaskWithInput(ctx, taskID)
	if err != nil {
		return "", false, err
	}
	again, _ := data.Retry() // ours, or not to be read
	var candidates []wire.Data
	if kept, err := readRequestMeta(order.Input); err == nil && order.Task.Class == Class {
		plain, _ := forwardedData(kept.Data, wire.Retry{}) // what went before may have had no room
		candidates = append(candidates, plain)
	}
	for _, r := range []wire.Retry{again, {}} {
		w := new(wire.Writer)
		if name := capabilityName(order.Input.Capabilities); name != "" {
			w.Add("call", name)
		}
		if !writeParameters(w, order.Input.Parameters) {
			break
		}
		if data, err := w.Retry(r).Data(); err == nil {
			candidates = append(candidates, data)
		}
	}
	for _, said := range candidates {
		if said != "" && !isUnencodableV4(said) {
			return said, true, nil
		}
	}
	return "", false, nil
}

// failAttemptV4 ends the attempt of a worker that cannot be told what to do, so that another
// one is asked, with a failure that says nothing about its line.
func (p *Protocol) failAttemptV4(ctx context.Context, agent models.Agent, m models.InboxMessage) error {
	t, err := p.orchestrator.Task(ctx, m.TaskID)
	if err != nil {
		return err
	}
	name, err := p.agentAddress(ctx, agent.ID)
	if err != nil {
		return err
	}
	_, err = p.orchestrator.Complete(ctx, agent.ID, t.ID, orchestrator.Result{
		Failure: otherWorkerFailure(t), Text: fmt.Sprintf("%s speaks V4, in which the parameters cannot be said", name),
		MessageID: "v4:" + t.ID + ":" + strconv.Itoa(m.Attempt),
	})
	if errs.Is(err, errs.TaskState) || isNotFound(err) {
		return nil
	}
	return err
}

// otherWorkerFailure is the failure after which the class of a task has another agent asked,
// without a word about the line of the one that was: E31 here, and a limit of the agent's
// in the other classes.
func otherWorkerFailure(t models.Task) orchestrator.Failure {
	if t.Class == Class {
		return orchestrator.FailureSaturated
	}
	return orchestrator.FailureResource
}
