//! Shapes that facts are held against: by a validation, and by each write.
mod holding;
mod modes;
mod suites;

use crate::{
    cli::{lines, svc},
    ontologies::load,
    principals::{grant, idle, someone},
    rdf::import,
    support::{TestApp, Wish, document},
};
use svc_client::{
    Client, Code, Failure, Json, OptionalJson, Remote,
    wire::{
        DocumentChange, DocumentPath, FactPath, FactQuery, GrantPath, GrantRight, ImportQuery, LintAudit, LintKind,
        LintRequest, NewDocument, NewShapeBinding, OntologyQuery, PageQuery, ShapeBindingChange, ShapeBindingPath,
        ShapeBindingResponse, ShapeMode, ValidationLimit, ValidationQuery, ValidationReport, WaitQuery,
    },
};

/// People have one name, in letters, and know people.
pub const SHAPES: &str = "<http://example.org/shapes> a owl:Ontology . ex:Student rdfs:subClassOf ex:Person .
    ex:PersonShape a sh:NodeShape ; sh:targetClass ex:Person ;
        sh:property [ sh:path ex:name ; sh:minCount 1 ; sh:maxCount 1 ; sh:pattern '^[A-Z]' ; sh:message 'needs one name in letters' ] ;
        sh:property [ sh:path ex:knows ; sh:class ex:Person ; sh:severity sh:Warning ] .";

pub async fn folder(app: &TestApp, title: &str, private: bool) -> i64 {
    let new = NewDocument { private, ..document(title, "") };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
}

pub async fn people(
    client: &Client<Remote>,
    parent_id: i64,
    text: &str,
) -> Result<svc_client::wire::ImportedGraph, Failure> {
    let query = ImportQuery { parent_id: Some(parent_id), ..ImportQuery::default() };
    import(client, query, &format!("@prefix ex: <http://example.org/> .\n{text}")).await
}

pub async fn bind(
    client: &Client<Remote>,
    shape: &str,
    document_id: Option<i64>,
    mode: Option<ShapeMode>,
) -> Result<ShapeBindingResponse, Failure> {
    client.create_shape_binding(Json(NewShapeBinding { shape: shape.to_owned(), document_id, mode })).await
}

async fn validate(client: &Client<Remote>, id: i64) -> Result<ValidationReport, Failure> {
    client.validate_shape(ShapeBindingPath { id }, ValidationQuery::default()).await
}

/// What is wrong, as focus, path and component.
pub fn wrong(report: &ValidationReport) -> Vec<String> {
    let last = |iri: &str| iri.trim_end_matches('>').rsplit(['/', '#']).next().unwrap().to_owned();
    let shown = report.results.iter().map(|result| {
        let component = last(&result.component);
        let path = result.path.as_deref().map(last).unwrap_or_default();
        format!(
            "{} {path} {}",
            last(result.focus.iri.as_deref().unwrap()),
            component.trim_end_matches("ConstraintComponent")
        )
    });
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}

#[tokio::test]
async fn a_bound_shape_is_held_against_the_facts_of_a_moment_and_a_place() {
    let app = idle().await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    let [here, there] = [folder(&app, "here", false).await, folder(&app, "there", false).await];
    people(
        &app.client,
        here,
        "ex:ada a ex:Student ; ex:name 'Ada', 'Augusta' ; ex:knows ex:rex . ex:bea a ex:Person ; ex:name 'Bea' .",
    )
    .await
    .unwrap();
    people(&app.client, there, "ex:carl a ex:Person ; ex:name 'carl' .").await.unwrap();
    let all = bind(&app.client, "http://example.org/PersonShape", None, None).await.unwrap();
    assert_eq!((all.mode, all.document_id), (ShapeMode::Warn, None));
    let report = validate(&app.client, all.id).await.unwrap();
    assert_eq!(wrong(&report), ["ada knows Class", "ada name MaxCount", "carl name Pattern"]);
    assert_eq!((report.conforms, report.focus_nodes, report.truncated), (Some(false), 3, None));
    let most = report.results.iter().find(|result| result.component.contains("MaxCount")).unwrap();
    assert_eq!((most.message.as_str(), most.triple_ids.len(), &most.value), ("needs one name in letters", 2, &None));
    assert_eq!(most.path.as_deref(), Some("<http://example.org/name>"));
    let knows = report.results.iter().find(|result| result.component.contains("Class")).unwrap();
    assert_eq!(knows.message, "is no <http://example.org/Person>");
    assert!(knows.value.as_ref().unwrap().document_id.is_some() && knows.severity.ends_with("#Warning"));

    // The whole ontology in one place.
    let only = bind(&app.client, "http://example.org/shapes", Some(there), Some(ShapeMode::Off)).await.unwrap();
    let report = validate(&app.client, only.id).await.unwrap();
    assert_eq!((wrong(&report), report.focus_nodes), (vec!["carl name Pattern".to_owned()], 1));
    let before = report.known_at;

    // What is mended is wrong at the moments before.
    let name = FactQuery { object_literal: Some("carl".to_owned()), ..FactQuery::default() };
    let name = app.client.list_facts(name).await.unwrap().facts.remove(0);
    app.client.invalidate_fact(FactPath { id: name.id }, OptionalJson(None)).await.unwrap();
    assert_eq!(wrong(&validate(&app.client, only.id).await.unwrap()), ["carl name MinCount"]);
    people(&app.client, there, "ex:carl ex:name 'Carl' .").await.unwrap();
    let path = ShapeBindingPath { id: only.id };
    let report = validate(&app.client, only.id).await.unwrap();
    assert_eq!((report.conforms, report.results.len()), (Some(true), 0));
    let then = ValidationQuery { known_at: Some(before), turtle: true, ..ValidationQuery::default() };
    let report = app.client.validate_shape(path, then).await.unwrap();
    assert_eq!(wrong(&report), ["carl name Pattern"]);
    let turtle = report.turtle.unwrap();
    assert!(
        turtle.contains("sh:conforms false")
            && turtle.contains("sh:sourceConstraintComponent sh:PatternConstraintComponent"),
        "{turtle}"
    );
    let long_ago = ValidationQuery { known_at: "2020-01-01T00:00:00Z".parse().ok(), ..ValidationQuery::default() };
    assert_eq!(app.client.validate_shape(path, long_ago).await.unwrap().focus_nodes, 0);

    // Numbers are compared however long they are.
    let large = "ex:Large a sh:NodeShape ; sh:targetClass ex:Star ; sh:property [ sh:path ex:mass ; sh:minExclusive 300000000000000000000 ] .";
    load(&app.client, OntologyQuery::default(), large).await.unwrap();
    let large = bind(&app.client, "http://example.org/Large", None, None).await.unwrap();
    let stars =
        "ex:sun a ex:Star ; ex:mass 300000000000000000001 . ex:dwarf a ex:Star ; ex:mass 300000000000000000000 .";
    people(&app.client, there, stars).await.unwrap();
    assert_eq!(wrong(&validate(&app.client, large.id).await.unwrap()), ["dwarf mass MinExclusive"]);
    app.end().await;
}

#[tokio::test]
async fn a_shape_that_cannot_be_held_against_facts_is_refused_by_name() {
    let app = idle().await;
    let deep: String = (0..60).map(|at| format!("ex:d{at} a sh:NodeShape ; sh:node ex:d{} .\n", at + 1)).collect();
    let text = format!(
        "ex:Sparql a sh:NodeShape ; sh:targetClass ex:A ; sh:sparql [ sh:select 'x' ] ; sh:js ex:f ; sh:targetNode ex:a .
         ex:Loose a sh:NodeShape ; sh:class ex:A .
         ex:Pattern a sh:NodeShape ; sh:targetClass ex:A ; sh:pattern '(' . ex:Back a sh:NodeShape ; sh:targetClass ex:A ; sh:pattern '(a)\\\\1' .
         ex:Count a sh:NodeShape ; sh:targetClass ex:A ; sh:property [ sh:path ex:p ; sh:minCount -1 ] .
         ex:Self a sh:NodeShape ; sh:targetClass ex:A ; sh:node ex:Other . ex:Other a sh:NodeShape ; sh:property [ sh:path ex:p ; sh:node ex:Self ] .
         ex:Path a sh:NodeShape ; sh:targetClass ex:A ; sh:property [ sh:path _:p ] . _:p sh:inversePath _:p .
         ex:Kind a sh:NodeShape ; sh:targetClass ex:A ; sh:nodeKind ex:Thing . ex:List a sh:NodeShape ; sh:targetClass ex:A ; sh:in ex:A .
         ex:d60 a sh:NodeShape . ex:Deep a sh:NodeShape ; sh:targetClass ex:A ; sh:node ex:d0 . {deep}"
    );
    let made = load(&app.client, OntologyQuery::default(), &text).await.unwrap();
    for (shape, says) in [
        ("Sparql", "sh:js, sh:sparql"),
        ("Loose", "has no target"),
        ("Pattern", "sh:pattern of the shape http://example.org/Pattern is no pattern"),
        ("Back", "sh:pattern of the shape http://example.org/Back is no pattern"),
        ("Count", "sh:minCount"),
        ("Self", "refers to itself"),
        ("Path", "leads back to itself"),
        ("Kind", "takes a kind of node"),
        ("List", "takes a list that ends"),
        ("Deep", "50 deep"),
        ("Unheard", "neither a shape nor an ontology"),
    ] {
        let refused = bind(&app.client, &format!("http://example.org/{shape}"), None, None).await.unwrap_err();
        assert_eq!((refused.status, &refused.members["field"]), (422, &"shape".into()), "{shape}");
        assert!(refused.detail.contains(says), "{shape}: {}", refused.detail);
    }
    let whole = format!("urn:svc:document/{}", made.document_id);
    assert_eq!(bind(&app.client, &whole, None, None).await.unwrap_err().status, 422);
    // An ontology without shapes has nothing to bind.
    let empty = load(&app.client, OntologyQuery::default(), "ex:A a owl:Class .").await.unwrap();
    let refused = bind(&app.client, &format!("urn:svc:document/{}", empty.document_id), None, None).await.unwrap_err();
    assert!(refused.detail.contains("no shape with a target"), "{}", refused.detail);
    assert!(app.client.list_shape_bindings(PageQuery::default()).await.unwrap().bindings.is_empty());
    app.end().await;
}

#[tokio::test]
async fn an_ontology_that_is_larger_than_is_still_allowed_is_413_with_the_setting_to_raise() {
    let app = idle().await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    let bound = bind(&app.client, "http://example.org/PersonShape", None, None).await.unwrap();
    let (database, settings) = (Some(app.options.clone()), &[("SVC_RDF_MAX_TRIPLES", "1")]);
    let less = TestApp::with(Wish { database, settings, no_worker: true, ..Wish::default() }).await;
    let refused = validate(&less.client, bound.id).await.unwrap_err();
    let said = |member: &str| refused.members[member].as_str().unwrap_or_default();
    assert_eq!((refused.code, said("setting")), (Code::TooLarge, "SVC_RDF_MAX_TRIPLES"), "{refused:?}");
    assert!(said("remedy").contains("raise SVC_RDF_MAX_TRIPLES"), "{refused:?}");
    assert_eq!(validate(&app.client, bound.id).await.unwrap().conforms, Some(true));
    less.end().await;
    app.end().await;
}

#[tokio::test]
async fn shapes_that_would_take_for_ever_are_given_up_and_said_to_be() {
    let app = idle().await;
    let here = folder(&app, "here", false).await;
    // Each shape holds its node against the next one twice: 2^40 ways, of which each is gone once.
    let twice: String = (0..40)
        .map(|at| {
            format!("ex:t{at} a sh:NodeShape ; sh:and ( ex:t{0} ex:t{0} ) ; sh:or ( ex:t{0} ex:t{0} ) .\n", at + 1)
        })
        .collect();
    let text = format!(
        "<http://example.org/twice> a owl:Ontology . ex:Twice a sh:NodeShape ; sh:targetClass ex:T ; sh:node ex:t0 . {twice} ex:t40 a sh:NodeShape ; sh:nodeKind sh:IRI .
         ex:Chain a sh:NodeShape ; sh:targetClass ex:Link ; sh:property [ sh:path [ sh:oneOrMorePath ex:next ] ; sh:class ex:Link ] .
         ex:Far a sh:NodeShape ; sh:targetClass ex:c3000 ; sh:class ex:c2999 .
         ex:Pairs a sh:NodeShape ; sh:targetClass ex:Hub ; sh:property [ sh:path ex:has ; sh:lessThan ex:has ] .
         ex:Many a sh:NodeShape ; sh:targetClass ex:Hub ; sh:property [ sh:path ex:has ; sh:datatype ex:nothing ] ."
    );
    load(&app.client, OntologyQuery::default(), &text).await.unwrap();
    let classes: String = (0..3_000)
        .map(|at| format!("ex:c{at} <http://www.w3.org/2000/01/rdf-schema#subClassOf> ex:c{}, ex:c0 .\n", at + 1))
        .collect();
    people(&app.client, here, &format!("ex:far a ex:c0 . {classes}")).await.unwrap();
    let links: String = (0..100).map(|at| format!("ex:l{at} ex:next ex:l{} .\n", at + 1)).collect();
    let hub: String = (0..10_100).map(|at| format!("ex:hub ex:has {at} .\n")).collect();
    people(&app.client, here, &format!("ex:x a ex:T . ex:l0 a ex:Link . ex:hub a ex:Hub . {links} {hub}"))
        .await
        .unwrap();
    for (shape, truncated, conforms) in [
        ("Twice", None, Some(true)),
        ("Chain", Some(ValidationLimit::Depth), None),
        ("Far", None, Some(true)),
        ("Many", Some(ValidationLimit::Results), Some(false)),
        ("Pairs", Some(ValidationLimit::Results), Some(false)),
    ] {
        let bound = bind(&app.client, &format!("http://example.org/{shape}"), None, None).await.unwrap();
        let report = validate(&app.client, bound.id).await.unwrap();
        assert_eq!((report.truncated, report.conforms), (truncated, conforms), "{shape}");
        assert!(report.results.len() <= 10_000);
    }
    app.end().await;
}

#[tokio::test]
async fn bindings_are_of_those_who_may_write_there_and_show_what_may_be_read() {
    let app = idle().await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    let (open, closed) = (folder(&app, "open", false).await, folder(&app, "closed", true).await);
    people(&app.client, open, "ex:ada a ex:Person .").await.unwrap();
    people(&app.client, closed, "ex:bea a ex:Person . ex:carl a ex:Person ; ex:name 'Carl' .").await.unwrap();
    let p = someone(&app, "p").await;
    let shape = "http://example.org/PersonShape";
    // All nodes are the owner's to bind, and so is what the principal may only read.
    assert_eq!(bind(&p.client, shape, None, None).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(bind(&p.client, shape, Some(open), None).await.unwrap_err().code, Code::Forbidden);
    let (hidden, missing) = (
        bind(&p.client, shape, Some(closed), None).await.unwrap_err(),
        bind(&p.client, shape, Some(9_999), None).await.unwrap_err(),
    );
    assert_eq!((hidden.code, hidden.detail.replace(&closed.to_string(), "9999")), (missing.code, missing.detail));
    let all = bind(&app.client, shape, None, None).await.unwrap();
    let there = bind(&app.client, shape, Some(closed), None).await.unwrap();
    assert_eq!(bind(&app.client, shape, Some(closed), None).await.unwrap_err().code, Code::Conflict);

    // A validation looks at what its caller may read.
    assert_eq!(wrong(&validate(&p.client, all.id).await.unwrap()), ["ada name MinCount"]);
    assert_eq!(wrong(&validate(&app.client, all.id).await.unwrap()), ["ada name MinCount", "bea name MinCount"]);
    let seen =
        |page: svc_client::wire::ShapeBindingPage| page.bindings.iter().map(|binding| binding.id).collect::<Vec<_>>();
    assert_eq!(seen(p.client.list_shape_bindings(PageQuery::default()).await.unwrap()), [all.id]);
    let path = ShapeBindingPath { id: there.id };
    assert_eq!(p.client.read_shape_binding(path).await.unwrap_err().code, Code::NotFound);
    assert_eq!(validate(&p.client, there.id).await.unwrap_err().code, Code::NotFound);

    grant(&app, &p, closed, GrantRight::Read).await;
    assert_eq!(wrong(&validate(&p.client, there.id).await.unwrap()), ["bea name MinCount"]);
    let change = ShapeBindingChange { mode: ShapeMode::Off };
    assert_eq!(p.client.update_shape_binding(path, Json(change)).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(p.client.delete_shape_binding(path).await.unwrap_err().code, Code::Forbidden);
    grant(&app, &p, closed, GrantRight::Write).await;
    assert_eq!(p.client.update_shape_binding(path, Json(change)).await.unwrap().mode, ShapeMode::Off);
    assert_eq!(app.client.read_shape_binding(path).await.unwrap().mode, ShapeMode::Off);
    p.client.delete_shape_binding(path).await.unwrap();
    assert_eq!(app.client.read_shape_binding(path).await.unwrap_err().code, Code::NotFound);
    assert_eq!(p.client.delete_shape_binding(ShapeBindingPath { id: all.id }).await.unwrap_err().code, Code::Forbidden);

    // A shape that the caller may not read cannot be bound, and is not said to exist.
    let secret = OntologyQuery { private: true, ..OntologyQuery::default() };
    load(&app.client, secret, "ex:Secret a sh:NodeShape ; sh:targetClass ex:Person .").await.unwrap();
    let refused = bind(&p.client, "http://example.org/Secret", Some(closed), None).await.unwrap_err();
    assert!(refused.status == 422 && refused.detail.contains("neither a shape nor an ontology"), "{}", refused.detail);
    // Bindings go with what they bind, and with where.
    let again = bind(&app.client, shape, Some(closed), None).await.unwrap();
    app.client.delete_document(DocumentPath { id: closed }).await.unwrap();
    assert_eq!(
        app.client.read_shape_binding(ShapeBindingPath { id: again.id }).await.unwrap_err().code,
        Code::NotFound
    );
    app.client.delete_document(DocumentPath { id: all.ontology_id }).await.unwrap();
    assert!(app.client.list_shape_bindings(PageQuery::default()).await.unwrap().bindings.is_empty());
    app.end().await;
}

/// Nobody else may change the ontology, so that whoever lost its right would decide for those who have it.
#[tokio::test]
async fn what_a_principal_bound_is_in_the_hands_of_all_who_write_there_and_holds_while_it_may_write_there() {
    let app = idle().await;
    let closed = folder(&app, "closed", true).await;
    let (p, q) = (someone(&app, "p").await, someone(&app, "q").await);
    for who in [&p, &q] {
        grant(&app, who, closed, GrantRight::Write).await;
    }
    let private = OntologyQuery { private: true, ..OntologyQuery::default() };
    let ontology = load(&p.client, private, SHAPES).await.unwrap().document_id;
    let shape = "http://example.org/PersonShape";
    let binds = async || bind(&p.client, shape, Some(closed), Some(ShapeMode::Reject)).await.unwrap();
    let writes = async |name: &str| {
        let done = people(&q.client, closed, &format!("ex:{name} a ex:Person .")).await;
        done.map(|_| ()).map_err(|failure| (failure.code, failure.detail))
    };
    let lacking = async || {
        let asked = LintRequest { audits: Some(vec![LintAudit::Coverage]), ..LintRequest::default() };
        let audits = app.client.lint_graph(Json(asked)).await.unwrap().audits;
        audits.iter().flat_map(|audit| &audit.findings).filter(|found| found.kind == LintKind::MinCount).count()
    };

    // Another writer is shown what refuses it, without the names of what it may not read, and takes it away.
    let bound = binds().await;
    assert_eq!((bound.shape.as_str(), bound.ontology_id, bound.holds), (shape, ontology, true));
    assert_eq!(writes("bea").await.unwrap_err().0, Code::ShapeViolation);
    let path = ShapeBindingPath { id: bound.id };
    let shown = q.client.read_shape_binding(path).await.unwrap();
    assert_eq!((shown.shape.clone(), shown.mode), (format!("urn:svc:document/{ontology}"), ShapeMode::Reject));
    assert_eq!(q.client.list_shape_bindings(PageQuery::default()).await.unwrap().bindings, [shown]);
    // A report would tell what the shapes say.
    let refused = validate(&q.client, bound.id).await.unwrap_err();
    assert_eq!((refused.code, refused.detail), (Code::NotFound, format!("there is no document {ontology}")));
    assert_eq!(validate(&p.client, bound.id).await.unwrap().conforms, Some(true));
    q.client.delete_shape_binding(path).await.unwrap();
    writes("bea").await.unwrap();

    let bound = binds().await;
    let path = ShapeBindingPath { id: bound.id };
    assert_eq!(writes("carl").await.unwrap_err().0, Code::ShapeViolation);
    assert_eq!(lacking().await, 1);
    app.client.delete_grant(GrantPath { id: closed, principal_id: p.id }).await.unwrap();
    writes("carl").await.unwrap();
    let shown = app.client.read_shape_binding(path).await.unwrap();
    assert_eq!((shown.shape.as_str(), shown.mode, shown.holds), (shape, ShapeMode::Reject, false));
    assert_eq!(lacking().await, 0);

    // Its text is still the principal's to change.
    let spoiled = DocumentChange { content: Some("no Turtle".to_owned()), ..DocumentChange::default() };
    p.client.update_document(DocumentPath { id: ontology }, WaitQuery::default(), Json(spoiled)).await.unwrap();
    people(&app.client, closed, "ex:dora a ex:Person .").await.unwrap();
    grant(&app, &p, closed, GrantRight::Write).await;
    let (code, detail) = writes("emil").await.unwrap_err();
    assert!(code == Code::ShapeViolation && detail.contains("cannot be used"), "{detail}");
    let off = ShapeBindingChange { mode: ShapeMode::Off };
    let changed = q.client.update_shape_binding(path, Json(off)).await.unwrap();
    assert_eq!((changed.mode, changed.holds), (ShapeMode::Off, true));
    writes("emil").await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn an_iri_means_to_the_owner_no_shape_that_a_principal_keeps_for_itself() {
    let app = idle().await;
    let ours = load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap().document_id;
    let p = someone(&app, "p").await;
    let private = || OntologyQuery { private: true, ..OntologyQuery::default() };
    let same =
        "ex:PersonShape a sh:NodeShape ; sh:targetClass ex:Person ; sh:property [ sh:path ex:mail ; sh:minCount 1 ] .
        ex:Secret a sh:NodeShape ; sh:targetClass ex:Person .";
    let same = load(&p.client, private(), same).await.unwrap().document_id;
    let called =
        "ex:PersonShape a owl:Ontology . ex:Other a sh:NodeShape ; sh:targetClass ex:Person ; sh:nodeKind sh:Literal .";
    let called = load(&p.client, private(), called).await.unwrap().document_id;
    let shape = "http://example.org/PersonShape";
    let bound = bind(&app.client, shape, None, Some(ShapeMode::Reject)).await.unwrap();
    assert_eq!((bound.ontology_id, bound.shape.as_str()), (ours, shape));
    // What nobody else has is bound by its document.
    let refused = bind(&app.client, "http://example.org/Secret", None, None).await.unwrap_err();
    let remedy = refused.members["remedy"].as_str().unwrap_or_default();
    assert!(refused.status == 422 && remedy.contains("by the IRI of its document"), "{refused:?}");
    let bound = bind(&app.client, &format!("urn:svc:document/{same}"), None, None).await.unwrap();
    assert_eq!(bound.ontology_id, same);
    // The principal means its own.
    let own = NewDocument { private: true, ..document("own", "") };
    let own = p.client.create_document(WaitQuery::default(), Json(own)).await.unwrap().id;
    assert_eq!(bind(&p.client, shape, Some(own), None).await.unwrap().ontology_id, called);
    app.end().await;
}

#[tokio::test]
async fn the_command_line_loads_ontologies_binds_shapes_and_says_what_does_not_conform() {
    let app = idle().await;
    let folder_ = tempfile::tempdir().unwrap();
    let file = folder_.path().join("shapes.ttl");
    let head = "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix sh: <http://www.w3.org/ns/shacl#> . @prefix ex: <http://example.org/> .";
    std::fs::write(&file, format!("{head}\n{SHAPES}")).unwrap();
    let made = lines(&svc(&app, &["ontology", "add", file.to_str().unwrap()]).await).remove(0);
    assert_eq!((&made["iri"], &made["classes"]), (&"http://example.org/shapes".into(), &2.into()));
    let id = made["document_id"].to_string();
    let listed = lines(&svc(&app, &["ontology", "list"]).await);
    assert_eq!(listed[0]["document_id"], made["document_id"]);
    let classes = lines(&svc(&app, &["ontology", "classes", &id]).await);
    assert_eq!(classes.len(), 2);
    let here = folder(&app, "here", false).await;
    people(&app.client, here, "ex:ada a ex:Person .").await.unwrap();
    let bound = lines(
        &svc(
            &app,
            &["shapes", "bind", "http://example.org/PersonShape", "--under", &here.to_string(), "--mode", "off"],
        )
        .await,
    )
    .remove(0);
    let binding = bound["id"].to_string();
    let checked = svc(&app, &["shapes", "validate", &binding]).await;
    assert_eq!(checked.status.code(), Some(1));
    assert_eq!(lines(&checked)[0]["message"], "needs one name in letters");
    people(&app.client, here, "ex:ada ex:name 'Ada' .").await.unwrap();
    let checked = svc(&app, &["shapes", "validate", &binding]).await;
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let changed = lines(&svc(&app, &["shapes", "mode", &binding, "reject"]).await).remove(0);
    assert_eq!(changed["mode"], "reject");
    assert_eq!(lines(&svc(&app, &["shapes", "list"]).await).len(), 1);
    assert!(svc(&app, &["shapes", "unbind", &binding]).await.status.success());
    assert!(lines(&svc(&app, &["shapes", "list"]).await).is_empty());
    assert!(svc(&app, &["ontology", "rm", &id]).await.status.success());
    assert!(lines(&svc(&app, &["ontology", "list"]).await).is_empty());
    app.end().await;
}
