//! Nodes that are made of real sentences. The vector of a node is the sum of the vectors of two sentences of one abstract and a little of
//! that of another one.
use crate::{encoder::cranfield::Cranfield, figure::BoxError};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use sqlx::PgPool;
use svc::{app::App, embedding::Embedder, store::vectors::Stored};

/// The sentences of each abstract, and their vectors.
pub struct Sentences {
    pub model: String,
    pub width: usize,
    of: Vec<Vec<String>>,
    vectors: Vec<Vec<Vec<f32>>>,
    random: SmallRng,
}

/// What is stored of a node.
pub struct Node {
    pub parent: i64,
    pub text: String,
    pub vector: Vec<f32>,
}

impl Sentences {
    pub async fn embed(app: &App, cranfield: &Cranfield) -> Result<Sentences, BoxError> {
        let engine = app.service.embedder.as_ref().and_then(Embedder::engine).ok_or("the service has no model")?;
        let (model, width) = (engine.info().identity.clone(), engine.info().native_width);
        let of: Vec<Vec<String>> = cranfield.documents.iter().map(|text| sentences(text)).collect();
        eprintln!("bench: {} sentences are embedded", of.iter().map(Vec::len).sum::<usize>());
        let mut vectors = engine.embed_documents(of.concat()).await?.into_iter().map(|embedding| embedding.vector);
        let vectors = of.iter().map(|sentences| vectors.by_ref().take(sentences.len()).collect()).collect();
        Ok(Sentences { model, width, of, vectors, random: SmallRng::seed_from_u64(2) })
    }

    /// The place of the abstract that a node is about.
    pub fn about(&self, number: usize) -> usize {
        number % self.of.len()
    }

    /// Makes a node about an abstract.
    pub fn node(&mut self, at: usize, parent: i64) -> Node {
        let Sentences { of, vectors, random, width, .. } = self;
        let other = random.random_range(0..of.len());
        let mut any = |at: usize| random.random_range(0..of[at].len());
        let (first, second, third) = (any(at), any(at), any(other));
        let (much, little) = (random.random_range(0.2..1.0_f32), random.random_range(0.0..0.5_f32));
        let (a, b, c) = (&vectors[at][first], &vectors[at][second], &vectors[other][third]);
        let mut vector: Vec<f32> = (0..*width).map(|i| a[i] + much * b[i] + little * c[i]).collect();
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|x| *x /= length);
        let text = [of[at][first].as_str(), &of[at][second], &of[other][third]].join(". ");
        Node { parent, text, vector }
    }

    /// Stores nodes, without postings and lexemes. Returns the ids in the order of the nodes.
    pub async fn store(&self, pool: &PgPool, nodes: &[Node]) -> Result<Vec<i64>, BoxError> {
        let stored = nodes.iter().map(|node| Stored::new(&self.model, self.width, &node.vector).vector);
        Ok(sqlx::query_scalar(
            "WITH n AS (SELECT * FROM unnest($1::bigint[], $2::text[], $3::halfvec[]) WITH ORDINALITY AS n(parent, content, embed, place)),
             made AS (
                 INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard, position)
                 SELECT parent, ARRAY[parent], 'part', content, 'chunk', 'sha256:' || md5(content), 0, place FROM n RETURNING id, position),
             near AS (
                 INSERT INTO document_vectors (document_id, embed_model, embed, weight)
                 SELECT made.id, $4, n.embed, 1 FROM made JOIN n ON n.place = made.position)
             SELECT id FROM made ORDER BY position",
        )
        .bind(nodes.iter().map(|node| node.parent).collect::<Vec<_>>())
        .bind(nodes.iter().map(|node| node.text.as_str()).collect::<Vec<_>>())
        .bind(stored.collect::<Vec<_>>())
        .bind(&self.model)
        .fetch_all(pool)
        .await?)
    }
}

/// The sentences of a text; a short one belongs to the one before it.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in text.split(['.', '\n']).map(str::trim).filter(|sentence| !sentence.is_empty()) {
        match sentences.last_mut() {
            Some(last) if sentence.len() < 30 => {
                last.push(' ');
                last.push_str(sentence);
            }
            _ => sentences.push(sentence.to_owned()),
        }
    }
    if sentences.is_empty() {
        sentences.push("nothing".to_owned());
    }
    sentences
}
