package upstream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// checkTimeout is how long the answer may take that clears a doubt, at most.
const checkTimeout = 10 * time.Second

// follow keeps the lists up to date until the session ends, and says why it did.
func (u *upstream) follow(ctx context.Context, r *ready) error {
	s := r.session
	relist := time.NewTicker(u.opts.RelistInterval)
	defer relist.Stop()
	var settled <-chan time.Time
	wait := u.opts.ChangeDelay
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return s.describeEnd(errors.New("the connection was lost"))
		case <-u.restart:
			return errors.New("it is started again because somebody asked for it")
		case <-s.checkRequested:
			if err := s.check(ctx); err != nil {
				return s.describeEnd(err)
			}
		case <-relist.C:
			s.staleLists.mark(s.unannouncedLists()...)
			if s.http != nil {
				s.requestCheck() // the end of an address is not told
			}
		case <-s.staleLists.wake:
			if settled == nil {
				settled = time.After(wait)
			}
		case <-settled:
			settled = nil
			began := time.Now()
			r = u.refresh(ctx, r)
			wait = max(u.opts.ChangeDelay, 5*time.Since(began)) // an upstream that changes all the time is read a sixth of it
		}
	}
}

// unannouncedLists are the lists of whose changes the upstream does not tell.
func (s *session) unannouncedLists() []ChangeKind {
	has := s.client.InitializeResult().Capabilities
	if has == nil {
		return nil
	}
	deaf := s.notificationsLost.Load()
	var kinds []ChangeKind
	if has.Tools != nil && (deaf || !has.Tools.ListChanged) {
		kinds = append(kinds, Tools)
	}
	if has.Resources != nil && (deaf || !has.Resources.ListChanged) {
		kinds = append(kinds, Resources)
	}
	if has.Prompts != nil && (deaf || !has.Prompts.ListChanged) {
		kinds = append(kinds, Prompts)
	}
	return kinds
}

// refresh reads the lists that have changed. One that cannot be read stays as it was.
func (u *upstream) refresh(ctx context.Context, old *ready) *ready {
	stale := old.staleLists.take()
	fresh, err := old.readCatalogue(ctx, old.catalogue, stale)
	if err != nil {
		u.opts.Logger.Warn("an upstream's lists cannot be read again", "upstream", u.server.ID, "error", err)
		old.requestCheck()
		return old
	}
	var changed []ChangeKind
	for kind, differs := range map[ChangeKind]bool{
		Tools: !reflect.DeepEqual(old.catalogue.tools, fresh.tools),
		Resources: !reflect.DeepEqual(old.catalogue.resources, fresh.resources) ||
			!reflect.DeepEqual(old.catalogue.templates, fresh.templates),
		Prompts: !reflect.DeepEqual(old.catalogue.prompts, fresh.prompts),
	} {
		if differs {
			changed = append(changed, kind)
		}
	}
	if len(changed) == 0 {
		return old
	}
	next := &ready{old.session, fresh}
	u.setState(Ready, next, changed)
	return next
}

// check asks a session that is in doubt for a sign of life. Any answer is one: the newest
// revision has no ping.
func (s *session) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(checkTimeout, s.launch.timeout()))
	defer cancel()
	_, err := guard(func() (struct{}, error) { return struct{}{}, s.client.Ping(ctx, nil) })
	var rpc *jsonrpc.Error
	if err == nil || errors.As(err, &rpc) && rpc.Code != codeRejected {
		return nil
	}
	return fmt.Errorf("it does not answer any more: %w", err)
}
