-- What language models are asked and what they answer, also by the batch interfaces of providers.

-- What a language model answered of a document, so that a task that runs again asks only for what is missing.
CREATE TABLE llm_answers (
    document_id       bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    -- The SHA-256 of the prompt's version, the model, the text and what else makes another question of it: equal questions are not paid twice.
    asked             bytea NOT NULL,
    -- The type of the tasks that asked.
    task_type         text NOT NULL,
    answer            text NOT NULL,
    -- Whether the endpoint cut it off.
    is_cut            boolean NOT NULL,
    -- The model that answered, as its endpoint names it.
    model             text NOT NULL,
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    -- The batch that brought the answer; NULL after a call of its own.
    batch_id          bigint,
    PRIMARY KEY (document_id, asked)
);
CREATE INDEX llm_answers_asked ON llm_answers (asked);

-- What calls took, by day, by what they were for and by model.
CREATE TABLE llm_usage (
    day               date NOT NULL,
    purpose           text NOT NULL,
    model             text NOT NULL,
    -- Whether the calls were requests of batches.
    is_batched        boolean NOT NULL,
    calls             bigint NOT NULL,
    failed_calls      bigint NOT NULL,
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    PRIMARY KEY (day, purpose, model, is_batched)
);

-- The optional fields that a provider refuses for a model, which no later request in a batch has.
CREATE TABLE llm_refused_fields (
    provider text NOT NULL,
    model    text NOT NULL,
    -- The name of the field; json_schema stands for response_format with a schema.
    field    text NOT NULL,
    PRIMARY KEY (provider, model, field)
);

CREATE DOMAIN llm_batch_state AS text CHECK (VALUE IN ('open', 'closed', 'submitting', 'submitted', 'ended'));

-- Batches of requests for a provider that answers within a day, at about half the price.
CREATE TABLE llm_batches (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider            text NOT NULL,
    -- The model that all of its requests are for.
    model               text NOT NULL,
    -- By this the provider's list of batches is searched after a crash between a submission and its record.
    key                 uuid NOT NULL DEFAULT gen_random_uuid(),
    -- open: it takes requests; closed: it takes no more; submitting: the provider may have it or not; submitted: the provider has it.
    state               llm_batch_state NOT NULL DEFAULT 'open',
    -- How it ended: completed, failed, expired or cancelled.
    outcome             text,
    provider_id         text,
    requests            integer NOT NULL DEFAULT 0,
    -- The size of its requests, as they are sent.
    bytes               bigint NOT NULL DEFAULT 0,
    opened_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    submitting_at       timestamptz,
    submitted_at        timestamptz,
    -- When the provider gives up.
    expires_at          timestamptz,
    ended_at            timestamptz,
    cancel_requested_at timestamptz,
    -- What came back: answers, errors, requests without an answer, lines that answer no request of this batch, lines that came twice, and answers that
    -- nobody waited for any more.
    answered            integer NOT NULL DEFAULT 0,
    failed              integer NOT NULL DEFAULT 0,
    unanswered          integer NOT NULL DEFAULT 0,
    unknown             integer NOT NULL DEFAULT 0,
    repeated            integer NOT NULL DEFAULT 0,
    dropped             integer NOT NULL DEFAULT 0,
    -- How often it was sent to a provider that may have it since and cannot be asked.
    doubts              integer NOT NULL DEFAULT 0,
    -- Before this it is not submitted again as long as another batch of its model is at the provider, which had no room for both.
    put_off_until       timestamptz,
    -- What went wrong last.
    problem             text,
    -- No task waits for its answers any more.
    is_done             boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX llm_batches_open ON llm_batches (provider, model) WHERE state = 'open';
CREATE INDEX llm_batches_owed ON llm_batches (provider, id) WHERE NOT is_done;

-- The requests of a batch. Each was asked by a task, for a document.
CREATE TABLE llm_batch_requests (
    batch_id      bigint NOT NULL REFERENCES llm_batches (id) ON DELETE CASCADE,
    -- By this the provider's answer names its request: task-{id}, with a number behind it where a task asks more than one question.
    custom_id     text NOT NULL,
    task_id       bigint NOT NULL,
    document_id   bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    -- See llm_answers.
    asked         bytea NOT NULL,
    -- The documents whose texts are the question, in its order, where it is of whole texts: whoever applies the answer need not look for them again.
    sources       bigint[] NOT NULL,
    -- What is sent; NULL once it is not needed any more.
    line          text,
    -- The task left the batch, so nobody waits for the answer.
    is_dropped    boolean NOT NULL DEFAULT false,
    is_over       boolean NOT NULL DEFAULT false,
    error_code    text,
    error_message text,
    PRIMARY KEY (batch_id, custom_id)
);
CREATE INDEX llm_batch_requests_task ON llm_batch_requests (task_id);
CREATE INDEX llm_batch_requests_document ON llm_batch_requests (document_id);
