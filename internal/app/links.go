package app

import (
	"cmp"

	"comet/internal/bus"
	"comet/internal/dialect"
	"comet/internal/dialect/envelope"
	"comet/internal/link"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
)

// newLinks returns the lines to agents, and what is spoken on them.
func (a *App) newLinks(work *orchestrator.Orchestrator, motion *bus.Bus) *link.Links {
	return link.New(link.Core{
		Work: work, Auth: a.tokens, Bus: motion,
		Dialects: []dialect.Dialect{envelope.New(work, &envelope.Options{Logger: a.log})},
	}, &link.Options{
		Guard:      netguard.New(a.cfg.Webhooks.Networks()),
		HTTPSOnly:  a.cfg.Webhooks.HTTPSOnly,
		Alone:      a.store.Database() == "sqlite",
		UserAgent:  "comet/" + cmp.Or(a.opts.Build.Version, "unknown"),
		Registerer: a.metrics.Registerer(),
		Logger:     a.log,
	})
}
