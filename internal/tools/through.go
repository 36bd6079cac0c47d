package tools

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"comet/models"
)

// passThrough makes a request that is no call of a tool, in the way of one: the ledger is
// asked, and the audit trail keeps it. fn returns what a model reads of the answer.
func (h *Service) passThrough(ctx context.Context, by Caller, server, name string, args json.RawMessage, fn func(context.Context) ([]string, error)) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	c := &call{id: id.String(), at: h.opts.Clock(), by: by, args: args, tool: &tool{server: server, name: textTo(name, models.MaxToolPattern), class: models.ToolRead}}
	p, err := h.may(ctx, by)
	if err != nil {
		return err
	}
	if !p.permits(server, name, args) {
		return h.refuse(c, name, refusal(CodePermissionDenied, "the token %q may not ask for %s so", by.Principal.Name, clip(name)))
	}
	promised := estimateTokens(len(args))
	payer, err := h.meter.admit(ctx, by.payer(), promised)
	if err != nil {
		return toError(h.refuse(c, name, err))
	}
	texts, err := guarded(h, c, func() ([]string, error) { return fn(ctx) })
	size := 0
	for _, t := range texts {
		size += len(t)
	}
	charged := promised
	if size > 0 {
		charged += estimateTokens(size)
	}
	payer.give(promised, charged, h.opts.Clock())
	h.end(c, ended{ToolCall: h.line(c, nil, err), texts: append([]string{string(args)}, texts...), payer: payer, charged: charged})
	if err != nil && !errors.Is(err, context.Canceled) {
		return toError(err)
	}
	return err
}
