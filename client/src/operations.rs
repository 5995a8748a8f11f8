//! The operations of the service, one row each. Everything else is derived from this table.
use crate::{Code, Events, Meta, body::*, meta::Given, operation::*, reply::*, wire::*};

/// Passes the table to a macro: `operation_table!(mount_all)`. A row without an `access` needs the right to read;
/// one with a `tool` is offered to language models, and one `on Replica` may be answered by a standby of the database.
#[macro_export]
macro_rules! operation_table { ($expand:ident) => { $expand! {
    /// Stores one file and queues its ingestion; returns before that work is done.
    POST   "/ingest/file"                 upload_file(query: UploadQuery, body: FileUpload) -> Accepted<UploadResponse>, access Write, fails [UnknownOption, StoredWithOtherOptions, WrongPassword], tool Write;
    /// Stores a text, a conversation or what an address holds, and answers when it is ingested.
    ///
    /// `entry` says how the content is read; `GET /ingest/pipelines` lists the entries. It is stored as an upload is: the same bytes through
    /// the same entry are found again, and other options are refused. The answer has the finished tree, or the failed one. After
    /// `SVC_INGEST_WAIT_SECONDS` it is 503, names the document and what its tasks wait for, and the work goes on. With `wait=false` the
    /// answer comes when it is stored, with the tree as far as it is there.
    POST   "/ingest"                      ingest(query: IngestQuery, body: Json<NewIngestion>) -> Created<IngestedTree>, access Write, fails [UnknownOption, StoredWithOtherOptions, WrongPassword, NotConfigured, FetchFailed], tool Write;
    /// Stores a whole conversation in one call, by the entry `conversation` of `POST /ingest`.
    ///
    /// The answer comes when it is stored; with `wait` when it can be found, or has failed. The same turns are found again, and are not
    /// stored twice.
    POST   "/conversations"               create_conversation(query: WaitQuery, body: Json<NewConversation>) -> Created<ConversationResponse>, access Write, fails [UnknownOption, StoredWithOtherOptions];
    /// Lists the entries of `POST /ingest`: where the content of each comes from, and the options that it gets.
    GET    "/ingest/pipelines"            list_pipelines() -> Json<PipelineList>;
    /// Shows which tasks a file of this format would get, and why; stores nothing.
    POST   "/ingest/explain"              explain_ingest(body: Json<ExplainRequest>) -> Json<Plan>, fails [UnknownOption];
    /// Examines a file and shows what an upload of it would do; stores nothing and queues nothing.
    POST   "/ingest/analyze"              analyze_file(body: FileUpload) -> Json<AnalyzeResponse>, fails [UnknownOption, WrongPassword];
    /// Counts the work that is left under an ingested file.
    ///
    /// A caller that prefers `text/event-stream` gets an event `frontier` with the same JSON at once and after each change;
    /// the event `end` closes the stream when no work is left. The event `problem` carries a `Failure` and closes the stream
    /// too. With `Last-Event-ID` the caller is not sent again what it has seen.
    GET    "/ingest/file/{id}/frontier"   read_frontier(path: DocumentPath) -> Json<FrontierResponse>, or follow_frontier -> Events<FrontierResponse>, tool Read;
    /// Ends a file's ingestion: what waits fails as cancelled at once, what runs is stopped within 2 seconds.
    ///
    /// If the file is being reprocessed, only that ends, and the tree that it has stays. A file that has settled or failed stays so: only the
    /// tasks that add to it end, such as those that extract facts. Those by which its settled texts are found as they are now go on in any case.
    POST   "/ingest/file/{id}/cancel"     cancel_ingest(path: DocumentPath) -> Accepted<CancelResponse>, access Write, tool Write;
    /// Ingests a stored file again, with other options, while the tree that it has stays searchable.
    ///
    /// The new tree takes the place of the old one in one transaction when it is done; if it fails, the old one stays. The file keeps its
    /// id, its place, its fields and who may reach it. Links that lead into the old tree follow to the node with the same anchor. The
    /// frontier has the progress as `reprocess`, and the evidence `reprocess` says how it ended. A file that is still being ingested, or
    /// reprocessed without `replace`, is 409.
    POST   "/ingest/file/{id}/reprocess"  reprocess_file(path: DocumentPath, body: OptionalJson<ReprocessRequest>) -> Guarded<Accepted<ReprocessResponse>>, access Write, fails [Conflict, PreconditionFailed, UnknownOption, WrongPassword];
    /// Changes the priority of a file's ingestion, for the tasks that wait and for all that follow.
    PUT    "/ingest/file/{id}/priority"   change_priority(path: DocumentPath, body: Json<PriorityChange>) -> Json<PriorityResponse>, access Write;

    /// Creates a document; with `wait` it answers once the document can be found, and warns if its vector is missing.
    POST   "/documents"                   create_document(query: WaitQuery, body: Json<NewDocument>) -> Created<CreatedDocument>, access Write, tool Write;
    /// Creates up to 1,000 documents in one transaction: all of them, or none, and then the error names the first one at fault by its `index`.
    POST   "/documents/batch"             create_documents(body: Json<NewBatch>) -> Json<BatchResponse>, access Write, fails [Conflict];
    /// Lists the documents without a parent in their order, page by page.
    GET    "/documents/roots"             list_roots(query: PageQuery) -> Json<DocumentPage>, tool Read, on Replica;
    /// Lists the stored files, latest first, page by page.
    GET    "/documents/files"             list_files(query: FileQuery) -> Json<FilePage>, on Replica;
    /// Reads one document; its vector only on request.
    GET    "/documents/{id}"              read_document(path: DocumentPath, query: EmbedQuery) -> Conditional<Json<DocumentResponse>>, tool Read, on Replica;
    /// Changes the fields of a document that the body names, or moves it with all under it.
    ///
    /// A new text is searched by its words at once, and by its meaning once it is embedded anew; the vector of the old text is
    /// gone with the old text. A caller that sends the `ETag` of what it read as `If-Match` overwrites no change of another's.
    /// A part of an ingested file takes a new text as well: it and the sections above it are `in_flight` until they are embedded anew.
    PATCH  "/documents/{id}"              update_document(path: DocumentPath, query: WaitQuery, body: Json<DocumentChange>) -> Versioned<Json<UpdatedDocument>>, access Write, fails [PreconditionFailed];
    /// Reads the stored bytes of a file, or one range of them.
    ///
    /// To continue a download that broke off, send the missing range in `Range` and the `ETag` of the first part in `If-Range`.
    GET    "/documents/{id}/bytes"        read_bytes(path: DocumentPath) -> Conditional<FileBytes>, fails [RangeNotSatisfiable];
    /// Deletes a document, all under it, and their stored bytes; with `If-Match` only if it is still what the caller read.
    DELETE "/documents/{id}"              delete_document(path: DocumentPath) -> Guarded<NoContent>, access Write, fails [PreconditionFailed], tool Destructive;
    /// Lists a document's children in their order, page by page.
    GET    "/documents/{id}/children"     list_children(path: DocumentPath, query: PageQuery) -> Json<DocumentPage>, tool Read, on Replica;
    /// Lists the documents above a document, root first, page by page.
    ///
    /// A document that the caller may not read is left out; `path` has its id nevertheless.
    GET    "/documents/{id}/ancestors"    list_ancestors(path: DocumentPath, query: PageQuery) -> Json<DocumentPage>, on Replica;
    /// Lists the other children of a document's parent in their order, page by page; for a root, the other roots.
    GET    "/documents/{id}/siblings"     list_siblings(path: DocumentPath, query: PageQuery) -> Json<DocumentPage>, on Replica;
    /// Lists everything under a document in the order of reading, page by page: each document before what is under it.
    GET    "/documents/{id}/subtree"      list_subtree(path: DocumentPath, query: PageQuery) -> Json<DocumentPage>, tool Read, on Replica;
    /// Lists a document's typed links, in both directions.
    GET    "/documents/{id}/links"        list_links(path: DocumentPath, query: PageQuery) -> Json<LinkPage>, on Replica;
    /// Links a document to another one.
    POST   "/documents/{id}/links"        create_link(path: DocumentPath, body: Json<NewLink>) -> Created<LinkResponse>, access Write;
    /// Deletes a link that leads from this document.
    DELETE "/documents/{id}/links/{link_id}" delete_link(path: LinkPath) -> NoContent, access Write;
    /// Reads everything that the pipeline recorded about a document.
    GET    "/documents/{id}/evidence"     read_evidence(path: DocumentPath) -> Json<EvidenceResponse>, tool Read, on Replica;
    /// Tells what happened to a file, in the order in which it began: the attempts of all tasks in its tree.
    ///
    /// Attempts that are alike are one entry, so that a file of a thousand sections is told in a few lines. The latest entries come first, and
    /// `next_cursor` leads to those before them.
    GET    "/documents/{id}/story"        read_story(path: DocumentPath, query: StoryQuery) -> Json<StoryResponse>, on Replica;
    /// Reads a rectangle of a stored workbook: values, formulas and a rendered grid.
    GET    "/documents/{id}/cells"        read_cells(path: DocumentPath, query: CellsQuery) -> Json<CellsResponse>, fails [Conflict, TooLarge, NotAWorkbook], tool Read;

    /// Cuts a document's text into documents under it, where the caller says or at its headings. The text itself stays.
    POST   "/documents/{id}/split"        split_document(path: DocumentPath, query: PiecesQuery, body: Json<SplitRequest>) -> Guarded<Created<PiecesResponse>>, access Write, fails [Conflict, PreconditionFailed, TooLarge];
    /// Cuts a document's text into chunks under it, as ingestion cuts a file's. The text itself stays.
    POST   "/documents/{id}/chunk"        chunk_document(path: DocumentPath, query: PiecesQuery, body: OptionalJson<ChunkRequest>) -> Guarded<Created<PiecesResponse>>, access Write, needs Model, fails [Conflict, PreconditionFailed, TooLarge];
    /// Puts a document's children into segments, between which the subject changes, as ingestion does with a file's.
    ///
    /// A segment is a new document, of the usetype `section`, between the document and its children; its vector is the weighted sum of
    /// theirs, and is made anew when these change. Children with rights of their own, and trees of summaries, stay where they are.
    POST   "/documents/{id}/segment"      segment_document(path: DocumentPath, body: OptionalJson<SegmentRequest>) -> Guarded<Json<SegmentResponse>>, access Write, needs Model, fails [Conflict, PreconditionFailed, TooLarge];
    /// Queues a tree of summaries over the leaves under a document, in place of the one that is there.
    ///
    /// The summaries are clustered and made after RAPTOR (arXiv 2401.18059). They are children of a document of their own
    /// under this one, of the usetype `summary`, and a search finds them by that usetype. With `wait` the answer has the
    /// tree, if that is made within a minute, and 409 if the task failed or was cancelled.
    POST   "/documents/{id}/raptor"       make_raptor(path: DocumentPath, query: WaitQuery, body: OptionalJson<RaptorRequest>) -> Accepted<RaptorResponse>, access Write, needs Model, fails [Conflict, TooLarge];
    /// Has a language model read facts in the texts at and under a document, as far as the caller may write these; each is cited with its words.
    ///
    /// A task reads each text. Names become entities beside the text, or stand for those that are there. With `wait` the answer has what came of it,
    /// if all tasks end within a minute.
    POST   "/documents/{id}/extract-facts" extract_facts(path: DocumentPath, query: WaitQuery, body: OptionalJson<ExtractFactsRequest>) -> Accepted<ExtractFactsResponse>, access Write, fails [NotConfigured, TooLarge];
    /// Chooses the texts under a document that cover all of them best within a budget of tokens.
    POST   "/documents/{id}/raptor/portfolio" choose_portfolio(path: DocumentPath, body: Json<PortfolioRequest>) -> Json<PortfolioResponse>, needs Model, fails [TooLarge, TextTooLong], on Replica;

    /// Follows what happens, as server-sent events: kinds and fields are in docs/events.md. The stream does not end by itself.
    ///
    /// Each event has its number as id and its kind as name. A caller that comes back with `Last-Event-ID` misses nothing, as long as
    /// it comes within the time for which events are kept; after that it gets 410. A caller is told only of what it may read. The event
    /// `problem` carries a `Failure` and closes the stream.
    GET    "/events"                      follow_events(query: EventQuery) -> Events<EventResponse>, fails [EventsExpired];
    /// Creates a webhook: an address that is called when something happens. Only this answer shows its secret.
    ///
    /// Calls follow Standard Webhooks: `webhook-id` is the same in every try, and `webhook-signature` is made with the secret. The
    /// receiver is sent every event from now on that the creator may read; a call that fails is tried again for about three days.
    POST   "/webhooks"                    create_webhook(body: Json<NewWebhook>) -> Created<IssuedWebhook>, access Write;
    /// Lists the caller's webhooks, for the owner all, page by page.
    GET    "/webhooks"                    list_webhooks(query: PageQuery) -> Json<WebhookPage>;
    /// Reads one webhook, without its secret.
    GET    "/webhooks/{id}"               read_webhook(path: WebhookPath) -> Json<WebhookResponse>;
    /// Deletes a webhook with its deliveries.
    DELETE "/webhooks/{id}"               delete_webhook(path: WebhookPath) -> NoContent, access Write;
    /// Has the webhook's address called with an event `webhook.test`.
    POST   "/webhooks/{id}/test"          test_webhook(path: WebhookPath) -> Accepted<DeliveryResponse>, access Write;
    /// Gives a webhook another secret, which only this answer shows; for a day, calls are signed with both.
    POST   "/webhooks/{id}/rotate"        rotate_webhook(path: WebhookPath) -> Json<IssuedWebhook>, access Write;
    /// Lists what a webhook was sent and is to be sent, newest first, page by page.
    GET    "/webhooks/{id}/deliveries"    list_deliveries(path: WebhookPath, query: PageQuery) -> Json<DeliveryPage>;
    /// Sends a delivery now, also one that was given up, and tries it as often as a new one.
    POST   "/webhooks/deliveries/{id}/retry" retry_delivery(path: DeliveryPath) -> Accepted<DeliveryResponse>, access Write;

    /// Embeds a document's text now and stores its vector, and with it the vectors of its most important tokens.
    POST   "/documents/{id}/embed"        embed_document(path: DocumentPath, query: EmbedOptions, body: OptionalJson<EmbedOptions>) -> Json<EmbedResponse>, access Write, needs Model, fails [TextTooLong];
    /// Stores the vectors of the most important tokens of a document's text, for search by late interaction.
    POST   "/documents/{id}/tokens"       embed_tokens(path: DocumentPath) -> Json<TokensResponse>, access Write, needs Model, fails [TextTooLong];
    /// Stores the vectors of the most important tokens of up to 100 documents, each by itself: the answer names the failure of each document that is refused, and the others get their vectors.
    POST   "/documents/tokens"            embed_many_tokens(body: Json<TokensBatch>) -> Json<TokensBatchResponse>, access Write, needs Model;

    /// Searches by the cosine similarity of document vectors.
    POST   "/search/vector"               search_vector(body: Json<VectorSearch>) -> Json<SearchResponse>, needs Model, fails [NotConfigured, TextTooLong], on Replica;
    /// Finds the documents whose vectors are the nearest to that of one document, but for that one, what is under it, and what is above it.
    GET    "/documents/{id}/similar"      find_similar(path: DocumentPath, query: SimilarQuery) -> Json<SearchResponse>, needs Model, fails [NotConfigured, Conflict], on Replica;
    /// Searches by PostgreSQL full text.
    ///
    /// First comes what has all that is asked for. If that is fewer than `limit`, documents follow that have some of the words, unless the
    /// query says `or`; phrases and what is forbidden hold for these too.
    POST   "/search/fulltext"             search_fulltext(body: Json<FulltextSearch>) -> Json<SearchResponse>, fails [NotConfigured, TextTooLong], on Replica;
    /// Searches by BM25 over an index.
    POST   "/search/bm25"                 search_bm25(body: Json<Bm25Search>) -> Json<SearchResponse>, fails [NotConfigured, TextTooLong], on Replica;
    /// Searches by late interaction of stored token vectors.
    POST   "/search/maxsim"               search_maxsim(body: Json<MaxsimSearch>) -> Json<SearchResponse>, needs Model, fails [NotConfigured, TextTooLong], on Replica;
    /// Searches by rank fusion of vector and BM25.
    POST   "/search/hybrid"               search_hybrid(body: Json<HybridSearch>) -> Json<SearchResponse>, needs Model, fails [NotConfigured, TextTooLong], tool Read, on Replica;
    /// Searches by the method that suits the query, or by that of the context; the answer says which, and why.
    ///
    /// A query with "phrases", -not or an upper-case `OR` between words goes to `fulltext`, an identifier to `bm25`, and everything else to `hybrid` with equal weights. Without a
    /// model the words decide.
    POST   "/search/auto"                 search_auto(body: Json<AutoSearch>) -> Json<SearchResponse>, fails [NotConfigured, TextTooLong], tool Read, on Replica;
    /// Asks up to 20 searches in one call, each by its own method; each is answered as if it were asked alone.
    ///
    /// Their queries are embedded together, and they are answered one after the other, by the rights that the caller has at the beginning. A search that fails has
    /// its `failure` in the place of its answer. All answers together include no more text than one alone, each its share.
    POST   "/search/batch"                search_batch(body: Json<SearchBatch>) -> Json<SearchBatchResponse>, on Replica;
    /// Searches as `POST /search/auto` does, and has the language model answer the question from the best texts alone.
    ///
    /// Each sentence of the answer names its sources, and each citation is a literal piece of a source. A sentence without one is marked
    /// `unsupported`; an answer without any supported sentence is 502 `ungrounded_answer`. If the sources do not answer, `answer` is null
    /// and `reason` says so; without sources the model is not called. A caller that prefers `text/event-stream` gets the events `sources`, a
    /// `delta` for each sentence once its quotes are checked, `citations`, and `done` with the whole answer; the event `problem` carries a
    /// `Failure` and closes the stream. The call of the model ends when the client hangs up.
    POST   "/search/synthesize"           synthesize(body: Json<SynthesizeSearch>) -> Json<SynthesizeResponse>, or follow_synthesis -> Events<AnswerPart>, fails [NotConfigured, TextTooLong, LlmFailed, UngroundedAnswer], tool Read;
    /// Searches as `POST /search/auto` does, for a browser's address line.
    GET    "/search/"                     search(query: SearchQuery) -> Json<SearchResponse>, fails [NotConfigured, TextTooLong], on Replica;

    /// Stores values of a search under a name, which searches give as their `context`.
    POST   "/search-contexts"             create_context(body: Json<NewContext>) -> Created<ContextResponse>, access Owner, fails [Conflict];
    /// Lists the search contexts, page by page.
    GET    "/search-contexts"             list_contexts(query: PageQuery) -> Json<ContextPage>;
    /// Reads one search context.
    GET    "/search-contexts/{id}"        read_context(path: ContextPath) -> Json<ContextResponse>;
    /// Changes a search context; the searches that name it follow at once.
    PATCH  "/search-contexts/{id}"        update_context(path: ContextPath, body: Json<ContextChange>) -> Json<ContextResponse>, access Owner, fails [Conflict];
    /// Deletes a search context; searches that name it are refused from then on.
    DELETE "/search-contexts/{id}"        delete_context(path: ContextPath) -> NoContent, access Owner;

    /// Shows a document as people read it, by the rule of its usetype.
    ///
    /// Text becomes blocks, with HTML that is safe to show; with `Accept: text/html` the answer is a page of them. What is under an ingested
    /// file is shown with its text in the order of the file.
    GET    "/view/{id}"                   view_document(path: DocumentPath) -> Conditional<Json<ViewResponse>>, or view_page -> Conditional<Text<Html>>, on Replica;
    /// Shows the next page of what is under a document, also where its view shows nothing of it.
    POST   "/view/{id}/expand-children"   expand_children(path: DocumentPath, body: OptionalJson<ExpandRequest>) -> Json<ViewChildren>, on Replica;
    /// Lists the documents above a document, root first. One that the caller may not read is a gap without a name.
    GET    "/view/{id}/breadcrumbs"       list_breadcrumbs(path: DocumentPath) -> Json<BreadcrumbList>, on Replica;
    /// Lists what refers to a document, page by page: links, facts, and texts that name it as `[[id]]`.
    GET    "/view/{id}/back-references"   list_back_references(path: DocumentPath, query: PageQuery) -> Json<BackReferencePage>, on Replica;
    /// Lists the rules by which views show documents.
    GET    "/usetype-presentations"       list_presentations() -> Json<PresentationList>;
    /// Creates the rule for a usetype, or for all that begin alike.
    POST   "/usetype-presentations"       create_presentation(body: Json<NewPresentation>) -> Created<PresentationResponse>, access Owner, fails [Conflict, TooLarge];
    /// Reads one rule.
    GET    "/usetype-presentations/{usetype}" read_presentation(path: PresentationPath) -> Json<PresentationResponse>;
    /// Changes the fields of a rule that the body names.
    PATCH  "/usetype-presentations/{usetype}" update_presentation(path: PresentationPath, body: Json<PresentationChange>) -> Json<PresentationResponse>, access Owner;
    /// Deletes a rule; one that the service brings is only reset.
    DELETE "/usetype-presentations/{usetype}" delete_presentation(path: PresentationPath) -> NoContent, access Owner, fails [Conflict];
    /// Gives a rule that the service brings its first form again.
    POST   "/usetype-presentations/{usetype}/reset" reset_presentation(path: PresentationPath) -> Json<PresentationResponse>, access Owner;

    /// Creates a template of a prompt: a document of the usetype `template`, in the syntax of Jinja.
    ///
    /// Every variable that the text uses must be declared. A text that breaks the grammar is refused with its line and column.
    POST   "/templates"                   create_template(query: WaitQuery, body: Json<NewTemplate>) -> Created<CreatedDocument>, access Write, fails [TooLarge];
    /// Lists the templates, page by page.
    GET    "/templates"                   list_templates(query: PageQuery) -> Json<DocumentPage>, on Replica;
    /// Reads one template; its variables and partials are its `structured_content`.
    GET    "/templates/{id}"              read_template(path: DocumentPath, query: EmbedQuery) -> Conditional<Json<DocumentResponse>>, on Replica;
    /// Changes the fields of a template that the body names. The evidence `versions` keeps what it was, with who changed it and when.
    PATCH  "/templates/{id}"              update_template(path: DocumentPath, query: WaitQuery, body: Json<TemplateChange>) -> Versioned<Json<UpdatedDocument>>, access Write, fails [PreconditionFailed, TooLarge];
    /// Deletes a template; with `If-Match` only if it is still what the caller read.
    DELETE "/templates/{id}"              delete_template(path: DocumentPath) -> Guarded<NoContent>, access Write, fails [PreconditionFailed];
    /// Renders a template with values and documents.
    ///
    /// A template reaches nothing but its values, its partials and the documents that the caller names and may read, and ends after a number of steps.
    POST   "/templates/{id}/render"       render_template(path: DocumentPath, body: OptionalJson<RenderRequest>) -> Json<RenderedTemplate>, fails [TooLarge];
    /// Searches the templates by any method.
    POST   "/templates/search"            search_templates(body: Json<TemplateSearch>) -> Json<SearchResponse>, fails [NotConfigured, TextTooLong], on Replica;

    /// Creates a search index of everything, or of some subtrees, and begins to build it.
    POST   "/indexes"                     create_index(body: Json<NewIndex>) -> Created<IndexResponse>, access Owner, fails [Conflict];
    /// Lists the search indexes, page by page.
    GET    "/indexes"                     list_indexes(query: PageQuery) -> Json<IndexPage>, access Owner;
    /// Reads one search index.
    GET    "/indexes/{id}"                read_index(path: IndexPath) -> Json<IndexResponse>, access Owner;
    /// Renames a search index, or changes how it ranks and reads texts; with another analyzer it is emptied and built anew.
    PATCH  "/indexes/{id}"                update_index(path: IndexPath, body: Json<IndexChange>) -> Json<IndexResponse>, access Owner, fails [Conflict];
    /// Deletes a search index, and no document.
    DELETE "/indexes/{id}"                delete_index(path: IndexPath) -> NoContent, access Owner, fails [Conflict];
    /// Lists the documents whose subtrees a search index covers, page by page; it covers everything if there are none.
    GET    "/indexes/{id}/members"        list_index_members(path: IndexPath, query: PageQuery) -> Json<MemberPage>, access Owner;
    /// Adds subtrees to a search index.
    POST   "/indexes/{id}/members"        add_index_members(path: IndexPath, body: Json<NewMembers>) -> Json<IndexResponse>, access Owner, fails [Conflict];
    /// Takes a subtree away from a search index; the last one stays.
    DELETE "/indexes/{id}/members/{document_id}" remove_index_member(path: IndexDocumentPath) -> NoContent, access Owner, fails [Conflict];
    /// Builds a search index anew from the documents that it covers, while it is searched.
    POST   "/indexes/{id}/refresh"        refresh_index(path: IndexPath) -> Accepted<IndexResponse>, access Owner;
    /// Puts a document into a search index now, or takes it out if it does not belong there.
    POST   "/indexes/{id}/index-document/{document_id}" index_document(path: IndexDocumentPath) -> Json<IndexedDocument>, access Owner;

    /// Creates a predicate, which says what facts say of their subjects. Every caller may read it.
    POST   "/triples/predicates"          create_predicate(body: Json<NewPredicate>) -> Created<PredicateResponse>, access Write, fails [Conflict];
    /// Lists the predicates, page by page.
    GET    "/triples/predicates"          list_predicates(query: PredicateQuery) -> Json<PredicatePage>;
    /// Reads one predicate.
    GET    "/triples/predicates/{id}"     read_predicate(path: PredicatePath) -> Json<PredicateResponse>;
    /// Changes a predicate; facts with it stay.
    PATCH  "/triples/predicates/{id}"     update_predicate(path: PredicatePath, body: Json<PredicateChange>) -> Json<PredicateResponse>, access Owner, fails [Conflict];
    /// Deletes a predicate that no fact has, not even one that is no longer believed.
    DELETE "/triples/predicates/{id}"     delete_predicate(path: PredicatePath) -> NoContent, access Owner, fails [Conflict];
    /// Asserts a fact about a document: what leads from it to another one or to a literal, and when that holds.
    ///
    /// Nothing is erased: a fact is superseded or invalidated, and what was believed at a past time reads the same for ever. The same
    /// statement is believed once at a time; two that do not overlap are two facts. A fact with a source is read by who may read the
    /// source, the subject and the object; one without by who may read subject and object.
    POST   "/triples"                     assert_fact(body: Json<NewFact>) -> Created<AssertedFact>, access Write, fails [Conflict, TooLarge, ShapeViolation], tool Write;
    /// Asserts up to 5,000 facts in one transaction: all of them, or none, and then the error names the first one at fault by its `index`.
    POST   "/triples/batch"               assert_facts(body: Json<NewFacts>) -> Json<BatchedFacts>, access Write, fails [Conflict, TooLarge, ShapeViolation];
    /// Lists facts as they hold and are believed now, or at other times, page by page.
    GET    "/triples"                     list_facts(query: FactQuery) -> Json<FactPage>, tool Read, on Replica;
    /// Reads one fact, also one that is no longer believed.
    GET    "/triples/{id}"                read_fact(path: FactPath) -> Json<FactResponse>, on Replica;
    /// Lists every form that a statement had in the store, oldest first, page by page.
    GET    "/triples/{id}/history"        read_fact_history(path: FactPath, query: PageQuery) -> Json<FactHistory>, on Replica;
    /// Puts another object in the place of a fact's, for all of its time or for a part; the old fact is closed and stays readable.
    POST   "/triples/{id}/supersede"      supersede_fact(path: FactPath, body: Json<Supersession>) -> Created<SupersededFact>, access Write, fails [Conflict, ShapeViolation], tool Write;
    /// Ends the belief in a fact, for all of its time or for a part; the fact stays readable.
    POST   "/triples/{id}/invalidate"     invalidate_fact(path: FactPath, body: OptionalJson<Invalidation>) -> Json<InvalidatedFact>, access Write, fails [Conflict, ShapeViolation];
    /// Lists which entities are taken for one, page by page.
    GET    "/graph/merges"                list_merges(query: MergeQuery) -> Json<MergePage>, fails [NotFound], on Replica;
    /// Takes two documents for one, from now on and until that is undone. No fact is rewritten.
    POST   "/graph/merges"                merge_entities(body: Json<NewMerge>) -> Created<MergeResponse>, access Write, fails [NotFound, Conflict];
    /// Undoes a merge: every answer is as it would be without it.
    DELETE "/graph/merges/{id}"           undo_merge(path: MergePath) -> NoContent, access Write, fails [Conflict];
    /// Finds the shortest paths between two documents along facts that the caller may read.
    POST   "/triples/path-find"           find_paths(body: Json<PathSearch>) -> Json<PathResponse>, tool Read, on Replica;

    /// Reads facts as Turtle, ordered by subject, while they are found.
    ///
    /// A document is named by the IRI that it was imported with, else by `{SVC_RDF_BASE}document/{id}`; a predicate by its own IRI, else by
    /// `{SVC_RDF_BASE}predicate/{namespace}/{name}`. The first lines name the moments that were read.
    GET    "/rdf/turtle"                  export_turtle(query: TurtleQuery) -> TextStream<Turtle>;
    /// Asserts the facts of a graph in Turtle or N-Triples: all of them, or none.
    ///
    /// An IRI of this store names its document or predicate; any other becomes a document of the usetype `entity`, once in what its reader may
    /// read, or a predicate. A blank node becomes a document too. What is believed already is not asserted again.
    POST   "/rdf/turtle"                  import_turtle(query: ImportQuery, body: RdfText) -> Json<ImportedGraph>, access Write, fails [Conflict, TooLarge, ShapeViolation];

    /// Stores an ontology in Turtle, with its classes as documents under it, and declares its predicates with what it says of them.
    ///
    /// An ontology with the same IRI at the same place is replaced: what the new text no longer states is closed and stays readable. What
    /// the text says of individuals becomes facts, and its shapes can be bound. `not_used` counts what says nothing to the service.
    POST   "/ontologies"                  create_ontology(query: OntologyQuery, body: TurtleText) -> Created<OntologyResponse>, access Write, fails [Conflict, TooLarge, ShapeViolation];
    /// Lists the ontologies, page by page.
    GET    "/ontologies"                  list_ontologies(query: PageQuery) -> Json<OntologyPage>, on Replica;
    /// Reads what is known of one ontology.
    GET    "/ontologies/{id}"             read_ontology(path: DocumentPath) -> Json<OntologyResponse>, on Replica;
    /// Lists the classes of an ontology with those that they are below, page by page.
    GET    "/ontologies/{id}/classes"     list_classes(path: DocumentPath, query: PageQuery) -> Json<ClassPage>, on Replica;
    /// Deletes an ontology with its classes and bindings, with `If-Match` only if it is still what the caller read; the facts that it alone stated are closed and stay readable to the owner.
    DELETE "/ontologies/{id}"             delete_ontology(path: DocumentPath) -> Guarded<NoContent>, access Write, fails [Conflict, PreconditionFailed];
    /// Binds a shape, by SHACL Core: what the facts of nodes must be like.
    ///
    /// A shape with a term that SHACL Core does not have is 422, which names it. A bound shape is held against the subjects of each write of
    /// facts; one that reaches a node by an inverse path or over several nodes is not noticed there, but by a validation.
    POST   "/shape-bindings"              create_shape_binding(body: Json<NewShapeBinding>) -> Created<ShapeBindingResponse>, access Write, fails [Conflict];
    /// Lists the shape bindings, page by page.
    GET    "/shape-bindings"              list_shape_bindings(query: PageQuery) -> Json<ShapeBindingPage>;
    /// Reads one shape binding.
    GET    "/shape-bindings/{id}"         read_shape_binding(path: ShapeBindingPath) -> Json<ShapeBindingResponse>;
    /// Changes what becomes of a write that breaks the shape.
    ///
    /// A caller that may read the ontology and sets another mode than `off` takes over a binding that has ceased to hold, as if that caller had bound the shape; one
    /// that holds stays whose it was.
    PATCH  "/shape-bindings/{id}"         update_shape_binding(path: ShapeBindingPath, body: Json<ShapeBindingChange>) -> Json<ShapeBindingResponse>, access Write;
    /// Takes a binding away; the shape stays in its ontology.
    DELETE "/shape-bindings/{id}"         delete_shape_binding(path: ShapeBindingPath) -> NoContent, access Write;
    /// Holds the facts of one moment that the caller may read against a bound shape.
    ///
    /// A caller that may not read the ontology gets 404.
    POST   "/shape-bindings/{id}/validate" validate_shape(path: ShapeBindingPath, query: ValidationQuery) -> Json<ValidationReport>, fails [TooLarge], on Replica;

    /// Shows the most central documents of the graph that the caller may read.
    GET    "/graph/centrality"            rank_documents(query: CentralityQuery) -> Json<CentralityResponse>, fails [TooLarge], on Replica;
    /// Shows the subtrees that the rest of the graph leads to.
    GET    "/graph/subtree-authority"     rank_subtrees(query: AuthorityQuery) -> Json<AuthorityResponse>, fails [TooLarge], on Replica;
    /// Shows the chains of the heaviest documents that a tree hangs on.
    GET    "/graph/spines"                find_spines(query: SpineQuery) -> Json<SpinesResponse>, fails [NotFound, TooLarge], on Replica;
    /// Shows groups of documents with more edges among them than to others, by the Leiden algorithm.
    GET    "/graph/communities"           find_communities(query: CommunityQuery) -> Json<CommunitiesResponse>, fails [TooLarge], on Replica;
    /// Shows the documents around one, and the facts that lead to them.
    GET    "/graph/neighbors"             find_neighbors(query: NeighborQuery) -> Json<NeighborResponse>, fails [NotFound], tool Read, on Replica;
    /// Shows which facts changed between two moments, page by page.
    GET    "/graph/diff"                  compare_facts(query: DiffQuery) -> Json<DiffResponse>, on Replica;
    /// Counts what there is in the graph that the caller may read.
    GET    "/graph/stats"                 read_graph_stats(query: GraphQuery) -> Json<GraphStats>, fails [TooLarge], on Replica;
    /// Audits what the caller may read for what hangs on nothing, contradicts itself, is stale, is not covered by search, or is open to all.
    ///
    /// All audits are of one moment.
    POST   "/graph/lint"                  lint_graph(body: Json<LintRequest>) -> Json<LintResponse>, on Replica;

    /// Reads documents with all that hangs on them, page by page: each before what is under it (docs/backup.md).
    ///
    /// `svc export` makes a folder of it, which `svc import` brings into another store. What the caller may not read is left out, and so are
    /// trees of summaries, which are made anew.
    GET    "/archive/documents"           export_documents(query: ArchiveQuery) -> Json<ArchivePage>, on Replica;
    /// Reads links with an end in a part of the tree, page by page; `outside` says that the other end is not in it.
    GET    "/archive/links"               export_links(query: ArchiveQuery) -> Json<ArchiveLinkPage>, on Replica;
    /// Reads the token vectors in a part of the tree, page by page, by the ids of the documents.
    GET    "/archive/tokens"              export_tokens(query: ArchiveQuery) -> Json<ArchiveTokenPage>, on Replica;
    /// Reads the grants in a part of the tree, page by page, with the principals by their names.
    GET    "/archive/grants"              export_grants(query: ArchiveQuery) -> Json<ArchiveGrantPage>, access Owner, on Replica;
    /// Stores documents of an archive under new ids: all of the call, or none. What an earlier call of the caller stored is found again.
    ///
    /// A vector of the model of this store is taken over, and the document is found at once; any other document is embedded anew.
    /// What was closed becomes an access root that only the caller reaches, and so does what a principal imports at the top.
    POST   "/archive/documents"           import_documents(query: ImportedArchive, body: Json<ArchivePart>) -> Json<ImportedPart>, access Write, fails [Conflict];
    /// Finds the documents that the caller imported, by their ids in the archive.
    POST   "/archive/ids"                 find_imported(query: ImportedArchive, body: Json<ArchiveIds>) -> Json<ImportedIds>;
    /// Gives an imported file its bytes, whose hash must be the one that it was imported with.
    POST   "/archive/documents/{id}/bytes" import_bytes(path: DocumentPath, query: ImportedBytesQuery, body: FileUpload) -> Json<ImportedBytes>, access Write, fails [Conflict, UnknownOption];
    /// Gives imported documents the token vectors that they had, where the model and the text are the same.
    POST   "/archive/tokens"              import_tokens(query: ImportedArchive, body: Json<ArchiveTokens>) -> Json<ImportedTokens>, access Write, fails [Conflict];
    /// Adds links between imported documents.
    POST   "/archive/links"               import_links(query: ImportedArchive, body: Json<ArchiveLinks>) -> Json<ImportedRows>, access Write;
    /// Asserts facts about imported documents, in Turtle with its history: each with its times, its type and its source.
    ///
    /// A fact with an end or a source that was not imported is left out, and so is what was no longer believed or derived.
    POST   "/archive/facts"               import_facts(query: ImportedFactsQuery, body: RdfText) -> Json<ImportedFacts>, access Write, fails [Conflict, TooLarge, ShapeViolation];
    /// Grants principals of the same names what they were granted on imported documents that are access roots.
    POST   "/archive/grants"              import_grants(query: ImportedArchive, body: Json<ArchiveGrants>) -> Json<ImportedRows>, access Owner;

    /// Says who the caller is, and what it was granted.
    GET    "/access/me"                   read_caller() -> Json<CallerResponse>;
    /// Creates a principal: a caller of its own, which reaches what it is granted and what is open to all.
    POST   "/access/principals"           create_principal(body: Json<NewPrincipal>) -> Created<PrincipalResponse>, access Owner;
    /// Lists the principals, page by page.
    GET    "/access/principals"           list_principals(query: PrincipalQuery) -> Json<PrincipalPage>, access Owner;
    /// Reads one principal.
    GET    "/access/principals/{id}"      read_principal(path: PrincipalPath) -> Json<PrincipalResponse>, access Owner;
    /// Renames, disables or enables a principal, or changes its kind.
    PATCH  "/access/principals/{id}"      update_principal(path: PrincipalPath, body: Json<PrincipalChange>) -> Json<PrincipalResponse>, access Owner;
    /// Deletes a principal with its tokens and grants, and never a document.
    DELETE "/access/principals/{id}"      delete_principal(path: PrincipalPath) -> NoContent, access Owner;
    /// Lists what a principal was granted, page by page.
    GET    "/access/principals/{id}/grants" list_principal_grants(path: PrincipalPath, query: PageQuery) -> Json<GrantPage>, access Owner;
    /// Issues a token; only this answer shows its secret.
    POST   "/access/principals/{id}/tokens" issue_api_token(path: PrincipalPath, body: Json<NewApiToken>) -> Created<IssuedApiToken>, access Owner;
    /// Lists a principal's tokens, also those that have ended, page by page.
    GET    "/access/principals/{id}/tokens" list_api_tokens(path: PrincipalPath, query: PageQuery) -> Json<ApiTokenPage>, access Owner;
    /// Reads one token, without its secret.
    GET    "/access/tokens/{id}"          read_api_token(path: ApiTokenPath) -> Json<ApiTokenResponse>, access Owner;
    /// Issues a token in place of another, which stays valid for a grace time; only this answer shows the new secret.
    POST   "/access/tokens/{id}/rotate"   rotate_api_token(path: ApiTokenPath, body: OptionalJson<ApiTokenRotation>) -> Created<IssuedApiToken>, access Owner;
    /// Revokes a token, from the next request on; to revoke it again changes nothing.
    POST   "/access/tokens/{id}/revoke"   revoke_api_token(path: ApiTokenPath) -> Json<ApiTokenResponse>, access Owner;
    /// Grants a principal a document and everything under it, in place of its grant there.
    ///
    /// A document that is no access root becomes one, so that only the owner and grantees reach it from then on.
    PUT    "/access/documents/{id}/grants/{principal_id}" put_grant(path: GrantPath, body: Json<NewGrant>) -> Json<GrantResponse>, access Owner;
    /// Takes a grant away. The document stays an access root, closed to all who have no other grant.
    DELETE "/access/documents/{id}/grants/{principal_id}" delete_grant(path: GrantPath) -> NoContent, access Owner;
    /// Lists the grants on a document itself, page by page.
    GET    "/access/documents/{id}/grants" list_document_grants(path: DocumentPath, query: PageQuery) -> Json<GrantPage>, access Owner;
    /// Makes a document an access root, which closes it to all who have no grant on it or above it.
    ///
    /// A document that is an access root already stays one.
    POST   "/access/documents/{id}/root"  protect_document(path: DocumentPath) -> Json<AccessRootResponse>, access Owner;
    /// Makes an access root an ordinary document again, as open as what is above it; its grants go.
    DELETE "/access/documents/{id}/root"  unprotect_document(path: DocumentPath) -> NoContent, access Owner;
    /// Lists who changed principals, tokens, grants, access roots and webhooks, who moved documents to other readers, and who acted on the queue; newest first, page by page.
    GET    "/access/audit"                list_audit(query: AuditQuery) -> Json<AuditPage>, access Owner;

    /// Describes the model of this runner.
    GET    "/runner/model"                runner_model(query: RunnerModelQuery) -> Json<RunnerModel>, access RunnerKey, needs OwnModel, fails [Conflict];
    /// Embeds texts for a worker or service that loads no model.
    POST   "/runner/embed"                runner_embed(body: Json<RunnerTexts>) -> Json<RunnerVectors>, access RunnerKey, needs OwnModel, fails [Conflict, TextTooLong];
    /// Embeds texts token by token for a worker or service that loads no model.
    POST   "/runner/tokens"               runner_tokens(body: Json<RunnerTokenTexts>) -> Json<RunnerTokenVectors>, access RunnerKey, needs OwnModel, fails [Conflict, TextTooLong];

    /// Lists tasks, oldest first, page by page; without a status those that still owe work.
    GET    "/admin/tasks"                 list_tasks(query: TaskQuery) -> Json<TaskPage>, access Owner;
    /// Reads one task and why it is not running.
    GET    "/admin/tasks/{id}"            read_task(path: TaskPath) -> Json<TaskResponse>, access Owner;
    /// Lists the attempts at a task, latest first, page by page.
    GET    "/admin/tasks/{id}/attempts"   list_attempts(path: TaskPath, query: PageQuery) -> Json<AttemptPage>, access Owner;
    /// Queues a task again that failed for good, and with it those that failed because of it.
    POST   "/admin/tasks/{id}/retry"      retry_task(path: TaskPath) -> Json<TaskResponse>, access Owner;
    /// Ends one task: a waiting one fails as cancelled at once, a running one is stopped within 2 seconds.
    POST   "/admin/tasks/{id}/cancel"     cancel_task(path: TaskPath) -> Json<TaskResponse>, access Owner;
    /// Lists the task types and how many tasks of each wait.
    GET    "/admin/task-types"            list_task_types() -> Json<TaskTypeList>, access Owner;
    /// Keeps tasks of one type from being claimed; running ones go on.
    POST   "/admin/task-types/{task_type}/pause"   pause_task_type(path: TaskTypePath) -> Json<TaskTypeState>, access Owner;
    /// Lets tasks of one type be claimed again.
    POST   "/admin/task-types/{task_type}/resume"  resume_task_type(path: TaskTypePath) -> Json<TaskTypeState>, access Owner;
    /// Lists the workers with their actors at the last heartbeat.
    ///
    /// Workers that are asked for with their actors send heartbeats every second for the next 15 seconds, so that the answer is young.
    GET    "/admin/workers"               list_workers(query: WorkerQuery) -> Json<WorkerList>, access Owner;
    /// Reads one worker with its actors at the last heartbeat.
    GET    "/admin/workers/{id}"          read_worker(path: WorkerPath, query: WorkerQuery) -> Json<WorkerResponse>, access Owner;
    /// Lists the held regions, page by page.
    GET    "/admin/reservations"          list_reservations(query: PageQuery) -> Json<ReservationPage>, access Owner;

    /// Draws the held regions, and those that tasks wait for, into the trees of their files; files with most waiting tasks first.
    GET    "/admin/regions"               draw_regions(query: RegionMapQuery) -> Json<RegionMap>, access Owner;
    /// Reads the queue and the fleet at a glance, as one measurement for all who ask.
    GET    "/admin/overview"              read_overview() -> Json<OverviewResponse>, access Owner;
    /// Lists what keeps tasks from running and what grows beyond one server, and what helps; `svc-worker doctor` shows the same.
    GET    "/admin/findings"              list_findings() -> Json<FindingList>, access Owner;
    /// Counts the tasks that were queued and the attempts that ended, minute by minute.
    GET    "/admin/throughput"            read_throughput(query: ThroughputQuery) -> Json<ThroughputResponse>, access Owner;
    /// Lists what failed for good, by the reason: type, class and code.
    GET    "/admin/failures"              list_failures(query: FailureQuery) -> Json<FailureList>, access Owner;
    /// Queues the tasks again that failed for a reason, up to 1,000 at a time.
    POST   "/admin/failures/retry"        retry_failures(body: Json<FailureChoice>) -> Json<FailuresRetried>, access Owner;
    /// Lists the batches of requests that providers of language models answer within a day, newest first, page by page (docs/language-model.md).
    GET    "/admin/llm-batches"           list_llm_batches(query: PageQuery) -> Json<LlmBatchPage>, access Owner;
    /// Reads what calls of language models took in the last days, by what they were for and by model.
    GET    "/admin/llm-usage"             read_llm_usage(query: LlmUsageQuery) -> Json<LlmUsageResponse>, access Owner;
    /// Reads which embedding model answers, and how far the last move of all vectors from one to another is (docs/search.md).
    GET    "/admin/model-move"            read_model_move() -> Json<ModelMoveResponse>, access Owner, needs Model;
    /// Begins to move all vectors to the model of `SVC_EMBEDDING_COMING_MODEL`, while the one that answers goes on answering.
    ///
    /// Tasks of the type `reembed` make the vectors. When each document has one, the new model answers, and those of others are deleted. If
    /// this move is under way, it only answers how far it is; if another one is, it is 409.
    POST   "/admin/model-move"            start_model_move() -> Accepted<ModelMoveResponse>, access Owner, needs Model, fails [NotConfigured, Conflict];
    /// Calls off the move that is under way, and deletes what it made. If its model answers already, it is 409: move back instead.
    DELETE "/admin/model-move"            cancel_model_move() -> NoContent, access Owner, fails [Conflict];
    /// Reads the bulk feed at a glance: its broker, queues, uploaders and outcomes, and what it gave up (docs/feed.md).
    GET    "/admin/feed"                  read_feed() -> Json<FeedResponse>, access Owner;
    /// Has messages that the bulk feed gave up tried once more, as their publishers', up to 1,000 at a time.
    POST   "/admin/feed/dead/replay"      replay_dead(body: Json<DeadChoice>) -> Json<DeadTaken>, access Owner, fails [NotConfigured];
    /// Removes messages that the bulk feed gave up for good, up to 1,000 at a time.
    POST   "/admin/feed/dead/drop"        drop_dead(body: Json<DeadChoice>) -> Json<DeadTaken>, access Owner, fails [NotConfigured];

    /// Says that the process is alive.
    GET    "/health"                      read_health() -> Json<HealthResponse>, access Public;
    /// Says whether the service can do its work, and what is missing.
    GET    "/ready"                       read_readiness() -> Json<ReadinessResponse>, access Public;
    /// Reads the metrics in Prometheus' text form.
    GET    "/metrics"                     read_metrics() -> Text<Prometheus>, access Metrics;
    /// Reads this contract.
    GET    "/openapi.json"                read_openapi() -> Json<OpenApiDocument>, access Public;
} } }

operation_table!(define_operations);
