package usage

import (
	"context"
	"errors"
)

// SettleUnconfirmed settles the accounts like Settle, but they do not learn the outcome.
func (p *Prepaid) SettleUnconfirmed(ctx context.Context) error {
	due, ops, err := p.due(ctx, releaseAfter)
	if err == nil {
		err = p.ledger.commit(ctx, ops)
	}
	for i, a := range due {
		p.apply(a, ops[i].(*prepay), errors.New("no response"))
		a.sending.Release(1)
	}
	return err
}

// Block keeps the ledger's responses from an account.
func (p *Prepaid) Block(agentID string) {
	_, a := p.hold(agentID, 1)
	_ = a.sending.Acquire(context.Background(), 1)
}

// HoldTimeout is the longest wait of Hold.
const HoldTimeout = holdTimeout
