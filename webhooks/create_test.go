package webhooks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

const url = "https://example.com/in?token=secret"

func draft(change func(d *webhooks.WebhookDraft)) webhooks.WebhookDraft {
	d := webhooks.WebhookDraft{URL: new(url), Events: []models.EventType{events.AgentCreated}}
	if change != nil {
		change(&d)
	}
	return d
}

// refusal returns the code of an error and the place and rule of each of its fields.
func refusal(err error) (errs.Code, []string) {
	var e *errs.Error
	if !errors.As(err, &e) {
		return errs.CodeOf(err), nil
	}
	var places []string
	for _, f := range e.Fields {
		places = append(places, f.Pointer+" "+f.Rule)
	}
	return e.Code, places
}

func TestCreate(t *testing.T) {
	t.Parallel()

	rule(t, "KeepsWhatItIsTold", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		created, err := h.Create(t.Context(), ops(), draft(func(d *webhooks.WebhookDraft) {
			d.Events, d.Description = events.ForWebhooks(), "to the on-call channel\nof “finance”"
			d.Secret = new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
			d.Headers, d.TimeoutSeconds, d.RetrySeconds = map[string]string{"X-Tenant": "a"}, new(60), []int{1, 86_400}
			d.AgentID, d.Subtree, d.Ordering, d.Enabled, d.Asymmetric = new("finance"), new(true), new(models.OrderingAgent), new(false), new(true)
		}), nil)
		require.NoError(t, err)
		require.Equal(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", created.Secret)
		hook := created.Webhook
		require.Len(t, webhooks.PublicKeys(hook.Keys, h.db.Now()), 1)
		want := models.Webhook{
			ID: hook.ID, URL: url, Description: "to the on-call channel\nof “finance”", Events: events.ForWebhooks(),
			AgentID: new("finance"), Subtree: true, Ordering: models.OrderingAgent, DisabledAt: new(h.db.Now()), Keys: hook.Keys,
			Headers: map[string]string{"X-Tenant": "a"}, TimeoutSeconds: 60, RetrySeconds: []int{1, 86_400}, ConfinedTo: []string{}, Version: 1, CreatedBy: "ops", CreatedAt: h.db.Now(), UpdatedAt: h.db.Now(),
		}
		require.Equal(t, want, hook)
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})

	rule(t, "MakesASecretOfItsOwnAndTakesTheRestAsUsual", func(t *testing.T, h *fixture) {
		one, err := h.Create(t.Context(), ops(), draft(nil), nil)
		require.NoError(t, err)
		two, err := h.Create(t.Context(), ops(), draft(nil), nil)
		require.NoError(t, err)
		require.NotEqual(t, one.Secret, two.Secret)
		require.Len(t, one.Webhook.Keys.Secret, 32)
		require.True(t, strings.HasPrefix(one.Secret, "whsec_"))
		require.True(t, one.Webhook.Enabled)
		require.Nil(t, one.Webhook.DisabledAt)
		require.Equal(t, models.OrderingNone, one.Webhook.Ordering)
		require.Nil(t, one.Webhook.Keys.SigningKey)
		all, err := h.List(t.Context(), ops(), "", 10)
		require.NoError(t, err)
		require.Equal(t, []models.Webhook{one.Webhook, two.Webhook}, all)
		all, err = h.List(t.Context(), ops(), one.Webhook.ID, 10)
		require.NoError(t, err)
		require.Equal(t, []models.Webhook{two.Webhook}, all)
	})

	rule(t, "OnceGivesTheStoredAnswer", func(t *testing.T, h *fixture) {
		rendered := 0
		once := func() *models.Idempotency {
			return &models.Idempotency{Principal: "ops", Key: "k", Render: func(result any) (models.StoredResponse, error) {
				rendered++
				return models.StoredResponse{Status: 201, Body: []byte(result.(webhooks.Created).Webhook.ID)}, nil
			}}
		}
		first := once()
		created, err := h.Create(t.Context(), ops(), draft(nil), first)
		require.NoError(t, err)
		require.Nil(t, first.Replay)
		second := once()
		_, err = h.Create(t.Context(), ops(), draft(nil), second)
		require.NoError(t, err)
		require.Equal(t, created.Webhook.ID, string(second.Replay.Body))
		require.Equal(t, 1, rendered)
		all, err := h.List(t.Context(), ops(), "", 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
	})

	rule(t, "RefusesAnAgentThatIsNotThere", func(t *testing.T, h *fixture) {
		_, err := h.Create(t.Context(), ops(), draft(func(d *webhooks.WebhookDraft) { d.AgentID = new("no-such-agent") }), nil)
		code, places := refusal(err)
		require.Equal(t, errs.InvalidRequest, code)
		require.Equal(t, []string{"/agent_id exists"}, places)
	})

	rule(t, "KeepsTheLimitUnderConcurrency", func(t *testing.T, h *fixture) {
		created, err := h.Create(t.Context(), ops(), draft(nil), nil)
		require.NoError(t, err)
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			for i := range webhooks.MaxWebhooks - 3 {
				w := created.Webhook
				w.ID = strings.Repeat("x", i+1)
				if err := tx.Webhooks().Insert(w); err != nil {
					return err
				}
			}
			return nil
		}))
		const callers = 8
		codes := make([]errs.Code, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				_, err := h.Create(t.Context(), ops(), draft(nil), nil)
				codes[i] = errs.CodeOf(err)
			})
		}
		wg.Wait()
		refused := 0
		for _, c := range codes {
			if c == errs.LimitReached {
				refused++
			}
		}
		require.Equal(t, callers-2, refused, "%v", codes)
		all, err := h.List(t.Context(), ops(), "", 2*webhooks.MaxWebhooks)
		require.NoError(t, err)
		require.Len(t, all, webhooks.MaxWebhooks)
	})
}

// TestWhatIsRefused needs no database, but one is there.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "sqlite")
	strict := webhooks.New(db.Store, &webhooks.Options{HTTPSOnly: true})
	public := webhooks.New(db.Store, nil)
	event := func(names ...models.EventType) func(*webhooks.WebhookDraft) {
		return func(d *webhooks.WebhookDraft) { d.Events = names }
	}
	headers := func(pairs ...string) func(*webhooks.WebhookDraft) {
		return func(d *webhooks.WebhookDraft) {
			d.Headers = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				d.Headers[pairs[i]] = pairs[i+1]
			}
		}
	}
	many := func(n int) (pairs []string) {
		for i := range n {
			pairs = append(pairs, fmt.Sprint("X-", i), "v")
		}
		return pairs
	}
	to := func(u string) func(*webhooks.WebhookDraft) { return func(d *webhooks.WebhookDraft) { d.URL = &u } }
	for name, c := range map[string]struct {
		change func(*webhooks.WebhookDraft)
		code   errs.Code
		places []string
		says   string
	}{
		"no URL":                                {func(d *webhooks.WebhookDraft) { d.URL = nil }, errs.InvalidRequest, []string{"/url required"}, ""},
		"an empty URL":                          {to(""), errs.InvalidRequest, []string{"/url url"}, "absolute"},
		"a path":                                {to("/in"), errs.InvalidRequest, []string{"/url url"}, "absolute"},
		"another scheme":                        {to("ftp://example.com"), errs.InvalidRequest, []string{"/url url"}, "https://"},
		"an opaque URL":                         {to("https:example.com"), errs.InvalidRequest, []string{"/url url"}, "host"},
		"no host":                               {to("https:///in"), errs.InvalidRequest, []string{"/url url"}, "host"},
		"a port alone":                          {to("https://:443/in"), errs.InvalidRequest, []string{"/url url"}, "host"},
		"port 0":                                {to("https://example.com:0/"), errs.InvalidRequest, []string{"/url url"}, "port"},
		"port 65536":                            {to("https://example.com:65536/"), errs.InvalidRequest, []string{"/url url"}, "port"},
		"a line break":                          {to("https://example.com/\nx"), errs.InvalidRequest, []string{"/url url"}, "must not contain spaces"},
		"a space in front":                      {to(" https://example.com/"), errs.InvalidRequest, []string{"/url url"}, "must not contain spaces"},
		"a space behind":                        {to("https://example.com/ "), errs.InvalidRequest, []string{"/url url"}, "must not contain spaces"},
		"a space in the path":                   {to("https://example.com/in box"), errs.InvalidRequest, []string{"/url url"}, "must not contain spaces"},
		"a space of another kind":               {to("https://example.com/in\u00a0box"), errs.InvalidRequest, []string{"/url url"}, "must not contain spaces"},
		"half an escape":                        {to("https://example.com/%zz"), errs.InvalidRequest, []string{"/url url"}, "cannot be read"},
		"a user":                                {to("https://me@example.com/"), errs.InvalidRequest, []string{"/url credentials"}, "user name"},
		"a password":                            {to("https://me:hunter2@example.com/"), errs.InvalidRequest, []string{"/url credentials"}, "user name"},
		"a fragment":                            {to("https://example.com/#x"), errs.InvalidRequest, []string{"/url fragment"}, "never sent"},
		"an empty fragment":                     {to("https://example.com/#"), errs.InvalidRequest, []string{"/url fragment"}, "never sent"},
		"2,049 bytes":                           {to("https://example.com/" + strings.Repeat("x", 2029)), errs.InvalidRequest, []string{"/url max"}, "2048"},
		"loopback":                              {to("http://127.0.0.1:8080/"), errs.AddressRefused, []string{"/url address"}, "loopback"},
		"loopback as a name":                    {to("http://localhost/"), errs.AddressRefused, []string{"/url address"}, "loopback"},
		"loopback in IPv6":                      {to("http://[::1]/"), errs.AddressRefused, []string{"/url address"}, "loopback"},
		"metadata, mapped":                      {to("http://[::ffff:169.254.169.254]/"), errs.AddressRefused, []string{"/url address"}, "metadata"},
		"loopback as a number":                  {to("http://2130706433/"), errs.AddressRefused, []string{"/url address"}, "number"},
		"no events":                             {event(), errs.InvalidRequest, []string{"/events required"}, ""},
		"an event twice":                        {event(events.AgentCreated, events.AgentCreated), errs.InvalidRequest, []string{"/events/1 unique"}, ""},
		"an unknown event":                      {event(events.AgentCreated, "agent.crated"), errs.InvalidRequest, []string{"/events/1 event"}, "did you mean agent.created?"},
		"an event that cannot be subscribed to": {event("webhook.test", "token.created"), errs.InvalidRequest, []string{"/events/0 event", "/events/1 event"}, "agent.created, agent.updated, agent.deactivated, agent.budget_warning, agent.budget_exceeded, webhook.disabled"},
		"a subtree of everything":               {func(d *webhooks.WebhookDraft) { d.Subtree = new(true) }, errs.InvalidRequest, []string{"/subtree agent_id"}, "agent_id"},
		"a malformed agent":                     {func(d *webhooks.WebhookDraft) { d.AgentID = new("Finance!") }, errs.InvalidRequest, []string{"/agent_id agent_id"}, ""},
		"another ordering":                      {func(d *webhooks.WebhookDraft) { d.Ordering = new(models.Ordering("time")) }, errs.InvalidRequest, []string{"/ordering oneof"}, ""},
		"a secret without a prefix":             {func(d *webhooks.WebhookDraft) { d.Secret = new("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") }, errs.InvalidRequest, []string{"/secret secret"}, "whsec_"},
		"a short secret":                        {func(d *webhooks.WebhookDraft) { d.Secret = new("whsec_MfKQ9r8G") }, errs.InvalidRequest, []string{"/secret secret"}, "24 to 64"},
		"an empty secret":                       {func(d *webhooks.WebhookDraft) { d.Secret = new("") }, errs.InvalidRequest, []string{"/secret secret"}, "omit it"},
		"an unknown family":                     {event("agents.*", "agent*"), errs.InvalidRequest, []string{"/events/0 event", "/events/1 event"}, "did you mean agent.*?"},
		"a timeout of 0":                        {func(d *webhooks.WebhookDraft) { d.TimeoutSeconds = new(0) }, errs.InvalidRequest, []string{"/timeout_seconds min"}, ""},
		"a timeout of 61":                       {func(d *webhooks.WebhookDraft) { d.TimeoutSeconds = new(61) }, errs.InvalidRequest, []string{"/timeout_seconds max"}, "60"},
		"13 retries":                            {func(d *webhooks.WebhookDraft) { d.RetrySeconds = slices.Repeat([]int{1}, 13) }, errs.InvalidRequest, []string{"/retry_seconds max"}, "12"},
		"a retry after a day and one at once":   {func(d *webhooks.WebhookDraft) { d.RetrySeconds = []int{86_401, 0} }, errs.InvalidRequest, []string{"/retry_seconds/0 max", "/retry_seconds/1 min"}, "86400"},
		"reserved headers":                      {headers("host", "x", "WEBHOOK-id", "x"), errs.InvalidRequest, []string{"/headers/WEBHOOK-id reserved", "/headers/host reserved"}, "Webhook-Id is set by comet"},
		"a header twice":                        {headers("x-a", "1", "X-A", "2"), errs.InvalidRequest, []string{"/headers/x-a unique"}, "X-A is given twice"},
		"malformed headers":                     {headers("a b", "x", "X/Y", "x", "X-Split", "a\r\nHost: b"), errs.InvalidRequest, []string{"/headers/X-Split header", "/headers/X~1Y header", "/headers/a b header"}, "not the name of an HTTP header"},
		"21 headers":                            {headers(many(21)...), errs.InvalidRequest, []string{"/headers max"}, "at most 20"},
		"headers of 4,097 bytes":                {headers("A", strings.Repeat("x", 4096)), errs.InvalidRequest, []string{"/headers max"}, "4096 bytes"},
		"several at once, the lower class first": {
			func(d *webhooks.WebhookDraft) {
				to("http://10.0.0.1/")(d)
				d.Subtree = new(true)
				d.AgentID = new("no-such-agent")
			},
			errs.InvalidRequest, []string{"/agent_id exists"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := public.Create(t.Context(), ops(), draft(c.change), nil)
			code, places := refusal(err)
			require.Equal(t, c.code, code, "%v", err)
			require.Equal(t, c.places, places)
			require.Contains(t, err.Error(), c.says)
			for _, secret := range []string{"hunter2", "MfKQ9r8G"} {
				require.NotContains(t, err.Error(), secret)
			}
		})
	}

	t.Run("http where only https is delivered to", func(t *testing.T) {
		t.Parallel()
		_, err := strict.Create(t.Context(), ops(), draft(to("http://example.com/")), nil)
		code, places := refusal(err)
		require.Equal(t, errs.InvalidRequest, code)
		require.Equal(t, []string{"/url https"}, places)
		_, err = strict.Create(t.Context(), ops(), draft(nil), nil)
		require.NoError(t, err)
	})

	t.Run("what only looks odd is accepted", func(t *testing.T) {
		t.Parallel()
		for _, u := range []string{
			"HTTPS://Example.COM", "http://example.com:8080", "https://example.com/a%20b?x=%23", "https://xn--bcher-kva.example/", "https://bücher.example/",
			"https://example.com/" + strings.Repeat("x", 2028), "http://[2606:4700::1111]/", "http://8.8.8.8/",
		} {
			_, err := public.Create(t.Context(), ops(), draft(to(u)), nil)
			require.NoError(t, err, u)
		}
	})
}
