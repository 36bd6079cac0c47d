package tools

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// Policy returns a token's policy, or errs.NotFound where it has none.
func (h *Service) Policy(ctx context.Context, tokenID string) (models.ToolPolicy, error) {
	p, err := h.store.ToolPolicy(ctx, tokenID)
	if errs.Is(err, errs.NotFound) {
		if _, err := h.store.Token(ctx, tokenID); errs.Is(err, errs.NotFound) {
			return p, errs.New(errs.NotFound, "there is no token %q", clip(tokenID))
		}
		err = errs.New(errs.NotFound, "the token %q has no policy for tools: it may call all", clip(tokenID))
	}
	return p, err
}

// SetPolicy says what a token may do with tools.
func (h *Service) SetPolicy(ctx context.Context, by models.Principal, tokenID string, p models.ToolPolicy) error {
	if err := checkRules(p); err != nil {
		return err
	}
	err := h.store.Write(ctx, func(tx *store.Tx) error { return tx.SaveToolPolicy(tokenID, p, by.Name) })
	h.policies.invalidate(tokenID)
	return err
}

// checkRules refuses rules that can match nothing: a rule that was meant to deny would not.
func checkRules(p models.ToolPolicy) error {
	var v errs.Violations
	id := regexp.MustCompile(`^[A-Za-z0-9*?-]+$`)
	for name, list := range map[string][]models.ToolRule{"allow": p.Allow, "deny": p.Deny} {
		for i, r := range list {
			if server, _, _ := strings.Cut(r.Tool, ":"); !id.MatchString(server) {
				v.Add(errs.InvalidRequest, fmt.Sprintf("/%s/%d/tool", name, i), "pattern",
					"%q is for no server: write serverId:toolName, or a server's id, with * and ? for any characters", clip(r.Tool))
			}
		}
	}
	return v.Err()
}

// DeletePolicy takes a token's policy away.
func (h *Service) DeletePolicy(ctx context.Context, tokenID string) error {
	err := h.store.Write(ctx, func(tx *store.Tx) error { return tx.DeleteToolPolicy(tokenID) })
	h.policies.invalidate(tokenID)
	return err
}
