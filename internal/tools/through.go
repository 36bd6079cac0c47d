package tools

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"comet/models"
)

// forwardRequest makes a request that is no call of a tool, in the way of one: the ledger is
// asked, and the audit trail keeps it. fn returns what a model reads of the answer.
func (h *Service) forwardRequest(ctx context.Context, by Caller, server, name string, args json.RawMessage, fn func(context.Context) ([]string, error)) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	c := &call{id: id.String(), at: h.opts.Clock(), by: by, args: args, tool: &tool{server: server, name: truncate(name, models.MaxToolPattern), class: models.ToolRead}}
	p, err := h.policyOf(ctx, by)
	if err != nil {
		return err
	}
	if !p.allowsArguments(server, name, args) {
		return h.recordRefusal(c, name, newRefusal(CodePermissionDenied, "the token %q may not ask for %s so", by.Principal.Name, clip(name)))
	}
	promised := estimateTokens(len(args))
	payer, err := h.prepaid.Reserve(ctx, by.payer(), promised)
	if err != nil {
		return toError(h.recordRefusal(c, name, err))
	}
	texts, err := withRecovery(h, c, func() ([]string, error) { return fn(ctx) })
	size := 0
	for _, t := range texts {
		size += len(t)
	}
	charged := promised
	if size > 0 {
		charged += estimateTokens(size)
	}
	payer.finishCall(promised, charged, h.opts.Clock())
	h.finish(c, callRecord{ToolCall: h.auditRecord(c, nil, err), texts: append([]string{string(args)}, texts...), payer: payer, estimate: charged})
	if err != nil && !errors.Is(err, context.Canceled) {
		return toError(err)
	}
	return err
}
