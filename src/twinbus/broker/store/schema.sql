-- One namespace, store format 2. Times are milliseconds since 1970. A blank line ends each statement.

-- Rows are appended in the order of arrival and found through messages_by_key. The payload comes last, so that reading
-- the columns before it never follows a long payload through its overflow pages. A row with a body_id has an empty
-- payload: what it stands for is in bodies.
create table messages (
    entity_id integer not null,
    sequence integer not null,
    state integer not null,
    enqueue_sequence integer not null,
    enqueued_at_ms integer not null,
    expires_at_ms integer,
    due_at_ms integer,
    delivery_count integer not null,
    message_id text,
    session_id text,
    dead_letter_source text,
    size integer not null,
    payload blob not null,
    body_id integer
) strict;

-- The one index every row enters. State and size are in it so that counting a million rows at start, and choosing which
-- rows of a queue to read, needs no look at the rows themselves. It is not unique (that would leave no room for the two):
-- the writer knows every entity's next sequence and looks a key up only when it is lower.
create index messages_by_key on messages (entity_id, sequence, state, size);

-- Most rows enter none of these.
create index messages_by_expiry on messages (entity_id, expires_at_ms, sequence)
    where state = 0 and expires_at_ms is not null;

create index messages_by_due on messages (entity_id, due_at_ms, sequence)
    where state = 2;

create index messages_by_session on messages (entity_id, session_id, sequence, state, size)
    where session_id is not null;

-- Payloads that several rows share: copies of one message in the subscriptions of a topic.
create table bodies (
    body_id integer primary key,
    copies integer not null,
    payload blob not null
) strict;

create trigger messages_deleted after delete on messages when old.body_id is not null
begin
    update bodies set copies = copies - 1 where body_id = old.body_id;
    delete from bodies where body_id = old.body_id and copies = 0;
end;

-- What applications keep about their sessions; a session without a state has no row.
create table session_states (
    entity_id integer not null,
    session_id text not null,
    updated_at_ms integer not null,
    state blob not null,
    primary key (entity_id, session_id)
) strict;

create index session_states_by_time on session_states (entity_id, updated_at_ms, session_id);

-- Ids of messages that were sent, for as long as a second one with the same id is a duplicate.
create table message_ids (
    entity_id integer not null,
    message_id text not null,
    until_ms integer not null,
    primary key (entity_id, message_id)
) strict, without rowid;

create index message_ids_by_end on message_ids (entity_id, until_ms);

create table entities (
    entity_id integer primary key,
    path text not null,
    kind text not null,
    parent_id integer,
    settings text not null,
    created_at_ms integer not null,
    updated_at_ms integer not null
) strict;

-- Entities that are gone but whose rows are still being cleaned away, a few at a time.
create table dropped (
    entity_id integer primary key
) strict;

-- What must outlive the rows: last_number (the last change set), next_entity_id, loads (how often the store was made
-- ready), and next_sequence/<entity id>. One table, so that a commit updates them all with one statement.
create table counters (
    name text primary key,
    value integer not null
) strict, without rowid;
