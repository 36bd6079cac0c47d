package tools

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/input/schema"
	"comet/models"
	"comet/store"
)

// toolDescription is the part of a tool that a model reads. A changed description needs a new approval.
type toolDescription struct {
	Title        string               `json:"title,omitempty"`
	Description  string               `json:"description,omitempty"`
	InputSchema  any                  `json:"inputSchema,omitempty"`
	OutputSchema any                  `json:"outputSchema,omitempty"`
	Annotations  *mcp.ToolAnnotations `json:"annotations,omitempty"`
}

// describe returns a tool's description and its digest, whatever the order of JSON members.
func describe(d *mcp.Tool) (digest string, text json.RawMessage) {
	text, _ = json.Marshal(toolDescription{d.Title, d.Description, d.InputSchema, d.OutputSchema, d.Annotations}) // decoded from JSON
	return hexDigest(text), text
}

func schemaText(schema any) json.RawMessage {
	text, _ := json.Marshal(schema) // nil if it cannot be encoded
	return text
}

// checkDefinitions compares the tools of a server with the stored definitions. A new tool is approved,
// except one of an upstream of the API with Options.QuarantineNew; a tool whose definition differs from the
// approved one is quarantined, and one with the approved definition again is released.
func (svc *Service) checkDefinitions(ctx context.Context, server string, defs []*mcp.Tool) ([]*Tool, error) {
	stored, err := svc.store.Tools(ctx).Definitions(server)
	if err != nil {
		return nil, err
	}
	known := make(map[string]models.ToolDefinition, len(stored))
	for _, k := range stored {
		known[k.Name] = k
	}
	out := make([]*Tool, 0, len(defs))
	var fresh []models.ToolDefinition
	seen := map[string]models.ToolDefinition{} // definitions that differ from the stored ones
	for _, d := range defs {
		digest, text := describe(d)
		t := &Tool{ID: toolID(server, d.Name), Server: server, Name: d.Name, ListedName: svc.opts.Names.listed(server, d.Name), Definition: d, digest: digest, Class: classOf(d)}
		t.schema = sync.OnceValue(func() *jsonschema.Resolved { return schema.Of(d.InputSchema) })
		out = append(out, t)
		now := models.ToolDefinition{Server: server, Name: d.Name, State: stateApproved, Digest: digest, Definition: text, SeenAt: svc.store.Now()}
		k, old := known[d.Name]
		if k.Class != "" {
			t.Class = k.Class
		}
		if !old {
			if svc.opts.QuarantineNew && svc.isOfAPI(server) {
				now.State, now.Digest, now.Definition = stateQuarantined, "", json.RawMessage("null")
			}
			fresh = append(fresh, now)
			continue
		}
		next, changes := svc.compareDefinition(k, now)
		t.quarantined = next.State == stateQuarantined
		if changes {
			seen[d.Name] = now
		}
	}
	if len(fresh) == 0 && len(seen) == 0 {
		return out, nil
	}
	err = svc.store.Write(ctx, func(tx *store.Tx) error {
		if err := tx.Tools().AddDefinitions(fresh); err != nil {
			return err
		}
		return svc.saveDefinitions(tx, seen)
	})
	if err != nil || len(fresh) == 0 {
		return out, err
	}
	return svc.checkDefinitions(ctx, server, defs) // another replica may have stored the definitions first
}

func (svc *Service) isOfAPI(server string) bool {
	s, _ := svc.upstreams.Server(server)
	return s.Source == apiSource
}

// compareDefinition returns the definition k after it was seen as now, and whether it changes.
func (svc *Service) compareDefinition(k, now models.ToolDefinition) (models.ToolDefinition, bool) {
	switch {
	case now.Digest == k.Digest:
		back := k.State == stateQuarantined
		k.State, k.PendingDigest, k.Pending = stateApproved, "", nil
		return k, back
	case svc.opts.TrustChanges && k.Digest != "":
		k.State, k.Digest, k.Definition, k.PendingDigest, k.Pending = stateApproved, now.Digest, now.Definition, "", nil
		k.ApprovedAt, k.ApprovedBy = now.SeenAt, models.System().Name
		return k, true
	}
	changes := k.PendingDigest != now.Digest
	if changes {
		k.PendingDigest, k.Pending, k.ChangedAt = now.Digest, now.Definition, now.SeenAt
	}
	k.State = stateQuarantined
	return k, changes
}

// saveDefinitions stores changed definitions, compared with the stored ones once more.
func (svc *Service) saveDefinitions(tx *store.Tx, seen map[string]models.ToolDefinition) error {
	var list []models.ToolDefinition
	for _, name := range slices.Sorted(maps.Keys(seen)) { // replicas lock rows in the same order
		k, err := tx.Tools().LockDefinition(seen[name].Server, name)
		if errs.Is(err, errs.NotFound) {
			continue // the upstream was removed
		}
		if err != nil {
			return err
		}
		d, changes := svc.compareDefinition(k, seen[name])
		if !changes {
			continue
		}
		list = append(list, d)
		if d.State == stateQuarantined {
			changed := toolChanged{Server: d.Server, Tool: d.Name, Digest: d.Digest, PendingDigest: d.PendingDigest}
			if err := tx.Events().Emit(events.ToolQuarantined, toolID(d.Server, d.Name), changed); err != nil {
				return err
			}
		}
	}
	return tx.Tools().SaveDefinitions(list)
}

// Approve approves the current definition of a quarantined tool. A digest other than "" must be
// that of the definition, so that the approved definition is the reviewed one, else the error is
// errs.PreconditionFailed. A tool that is not quarantined stays unchanged.
func (svc *Service) Approve(ctx context.Context, by models.Principal, server, name, digest string) (d models.ToolDefinition, err error) {
	err = svc.store.Write(ctx, func(tx *store.Tx) error {
		d, err = approve(tx, by, server, name, digest)
		return err
	})
	if err == nil {
		svc.refreshNow(context.WithoutCancel(ctx), server)
	}
	return d, err
}

func approve(tx *store.Tx, by models.Principal, server, name, digest string) (models.ToolDefinition, error) {
	d, err := tx.Tools().LockDefinition(server, name)
	if err != nil || d.State != stateQuarantined || d.PendingDigest == "" {
		return d, err
	}
	if digest != "" && digest != d.PendingDigest {
		return d, errs.New(errs.PreconditionFailed, "the definition of %s has changed again: its digest is now %s, review it again", toolID(server, name), d.PendingDigest)
	}
	d.State, d.Digest, d.Definition, d.PendingDigest, d.Pending = stateApproved, d.PendingDigest, d.Pending, "", nil
	d.ApprovedAt, d.ApprovedBy = tx.Now(), by.Name
	if err := tx.Tools().SaveDefinitions([]models.ToolDefinition{d}); err != nil {
		return d, err
	}
	return d, tx.Events().Emit(events.ToolApproved, toolID(server, name), toolChanged{Server: server, Tool: name, Digest: d.Digest, Actor: by.Name})
}

// ApproveUpstream approves the current definitions of all quarantined tools of an upstream, and returns
// the definitions of all its tools.
func (svc *Service) ApproveUpstream(ctx context.Context, by models.Principal, server string) ([]models.ToolDefinition, error) {
	list, err := svc.ToolDefinitions(ctx, server)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(list)
	err = svc.store.Write(ctx, func(tx *store.Tx) (err error) {
		for i := 0; i < len(list) && err == nil; i++ {
			if list[i].PendingDigest != "" {
				out[i], err = approve(tx, by, server, list[i].Name, list[i].PendingDigest)
			}
		}
		return err
	})
	if err == nil {
		svc.refreshNow(context.WithoutCancel(ctx), server)
	}
	return out, err
}

// Classify sets the class of a tool instead of its annotations; "" uses the annotations again.
func (svc *Service) Classify(ctx context.Context, by models.Principal, server, name string, class models.ToolClass) (d models.ToolDefinition, err error) {
	if class != "" && !slices.Contains(toolClasses(), class) {
		return d, errs.New(errs.InvalidRequest, "class must be one of %v, not %q", toolClasses(), input.Clip(string(class)))
	}
	err = svc.store.Write(ctx, func(tx *store.Tx) error {
		if d, err = tx.Tools().LockDefinition(server, name); err != nil {
			return err
		}
		d.Class = class
		if err := tx.Tools().SaveDefinitions([]models.ToolDefinition{d}); err != nil {
			return err
		}
		return tx.Events().Emit(events.ToolClassified, toolID(server, name), toolChanged{Server: server, Tool: name, Digest: d.Digest, Class: class, Actor: by.Name})
	})
	if err == nil {
		svc.refreshNow(context.WithoutCancel(ctx), server)
	}
	return d, err
}

// toolClasses returns all classes, the mildest first.
func toolClasses() []models.ToolClass {
	return []models.ToolClass{models.ToolRead, models.ToolWrite, models.ToolDestructive}
}

// The states of a tool.
const (
	stateApproved    = "approved"
	stateQuarantined = "quarantined" // its definition differs from the approved one
)
