use super::*;

type Plain = Tokens<(), u32>;

fn tokens(max: usize) -> Plain {
    Tokens::new(max, 7)
}

fn start_many(tokens: &mut Plain, count: usize) -> Vec<QToken> {
    (0..count).map(|_| tokens.start(()).unwrap()).collect()
}

fn take_any(tokens: &mut Plain, qts: &[QToken]) -> Option<(usize, u32)> {
    let mut search = Search::default();
    loop {
        if let Some(found) = tokens.take_any(qts, &mut search) {
            return Some(found);
        }
        if !tokens.check_any(qts, &mut search).unwrap() {
            return None;
        }
    }
}

#[test]
fn a_token_is_consumed_exactly_once() {
    let mut tokens = tokens(4);
    let qt = tokens.start(()).unwrap();
    assert_eq!(tokens.take(qt), Ok(None));
    assert!(tokens.complete(qt, |(), result| *result = 5));
    assert!(!tokens.complete(qt, |(), result| *result = 6));
    assert_eq!(tokens.take(qt), Ok(Some(5)));
    assert_eq!(tokens.take(qt), Err(Error::Invalid));
    assert!(!tokens.complete(qt, |(), result| *result = 6));
}

#[test]
fn an_operation_that_fails_to_begin_leaves_no_token() {
    let mut tokens = tokens(1);
    let mut told = None;
    let failed = tokens.start_with(|qt, ()| {
        told = Some(qt);
        Err::<(), _>(Error::Exhausted)
    });
    assert_eq!((failed, tokens.len()), (Err(Error::Exhausted), 0));
    assert_eq!(tokens.take(told.unwrap()), Err(Error::Invalid));
    let begun = tokens.start_with(|_, ()| Ok(7));
    assert!(matches!(begun, Ok((_, 7))));
}

#[test]
fn zero_all_ones_and_strangers_are_no_tokens() {
    let mut ours = tokens(4);
    let theirs = Plain::new(4, 8).start(()).unwrap();
    ours.start(()).unwrap();
    for qt in [QToken(0), QToken(u64::MAX), theirs] {
        assert_eq!(ours.take(qt), Err(Error::Invalid));
    }
}

#[test]
fn a_token_whose_slot_is_taken_again_stays_invalid() {
    let mut tokens = tokens(1);
    for round in 0..1000 {
        let qt = tokens.start(()).unwrap();
        assert_eq!(tokens.start(()), Err(Error::Exhausted));
        assert!(tokens.complete(qt, |(), result| *result = round));
        assert_eq!(tokens.take_oldest(), Some((qt, round)));
        let next = tokens.start(()).unwrap();
        assert_ne!(next, qt);
        assert_eq!(tokens.take(qt), Err(Error::Invalid));
        tokens.withdraw(next);
    }
    assert!(tokens.is_empty());
}

#[test]
fn results_come_oldest_first_also_when_some_were_taken_out_between() {
    let mut tokens = tokens(8);
    let qts = start_many(&mut tokens, 5);
    for (value, &place) in [3, 1, 4, 0, 2].iter().enumerate() {
        assert!(tokens.complete(qts[place], |(), result| *result = value as u32));
    }
    assert_eq!(tokens.take(qts[4]), Ok(Some(2)));
    assert_eq!(tokens.take(qts[3]), Ok(Some(0)));
    assert_eq!(tokens.take(qts[2]), Ok(Some(4)));
    assert_eq!(tokens.take_oldest(), Some((qts[1], 1)));
    assert_eq!(tokens.take_oldest(), Some((qts[0], 3)));
    assert_eq!(tokens.take_oldest(), None);
}

#[test]
fn any_gives_the_oldest_of_those_passed_and_its_place() {
    let mut tokens = tokens(8);
    let qts = start_many(&mut tokens, 5);
    for &place in &[4, 2, 0] {
        assert!(tokens.complete(qts[place], |(), result| *result = place as u32));
    }
    assert_eq!(take_any(&mut tokens, &qts[..4]), Some((2, 2)));
    assert_eq!(take_any(&mut tokens, &[qts[1], qts[0]]), Some((1, 0)));
    assert_eq!(take_any(&mut tokens, &[qts[1]]), None);
    assert_eq!(tokens.take(qts[4]), Ok(Some(4)));
}

#[test]
fn an_invalid_token_matters_only_if_nothing_is_ready() {
    let mut tokens = tokens(8);
    let qts = start_many(&mut tokens, 2);
    let passed = [QToken(0), qts[0], qts[1]];
    assert!(tokens.complete(qts[1], |(), result| *result = 1));
    let mut search = Search::default();
    assert_eq!(tokens.take_any(&passed, &mut search), Some((2, 1)));
    let mut search = Search::default();
    assert_eq!(tokens.take_any(&passed[..2], &mut search), None);
    assert_eq!(
        tokens.check_any(&passed[..2], &mut search),
        Err(Error::Invalid)
    );
    assert_eq!(tokens.take(qts[0]), Ok(None));
}

/// With 4 checked per empty turn the 200th is found in the 50th.
#[test]
fn an_invalid_token_in_a_long_array_is_found_within_a_few_turns() {
    let mut tokens = tokens(256);
    let mut qts = start_many(&mut tokens, 200);
    qts[199] = QToken(3);
    let mut search = Search::default();
    assert_eq!(tokens.take_any(&qts, &mut search), None);
    for _ in 0..49 {
        assert_eq!(tokens.check_any(&qts, &mut search), Ok(false));
    }
    assert_eq!(tokens.check_any(&qts, &mut search), Err(Error::Invalid));
}

/// Random play against a model that looks at everything: tokens replaced in place, swapped out,
/// shifted, appended, completed in any order and sometimes taken elsewhere.
#[test]
fn any_agrees_with_a_scan_of_everything() {
    for len in [3, 64, 65, 300] {
        let mut rng = crate::rng::Rng::new(len as u64);
        let mut tokens = tokens(2048);
        let mut qts = start_many(&mut tokens, len);
        let mut done: Vec<QToken> = Vec::new();
        for round in 0..3000 {
            for _ in 0..rng.below(3) {
                let qt = qts[rng.below(qts.len() as u64) as usize];
                if tokens.complete(qt, |(), result| *result = round) {
                    done.push(qt);
                }
            }
            let expected = done.iter().find(|qt| qts.contains(qt)).copied();
            let found = take_any(&mut tokens, &qts);
            assert_eq!(
                found.map(|(place, _)| qts[place]),
                expected,
                "round {round}"
            );
            let Some((place, _)) = found else { continue };
            done.retain(|&qt| Some(qt) != expected);
            change(&mut tokens, &mut qts, place, rng.below(8));
        }
    }
}

fn change(tokens: &mut Plain, qts: &mut Vec<QToken>, place: usize, kind: u64) {
    let fresh = tokens.start(()).unwrap();
    match kind {
        0 => {
            qts.swap_remove(place);
            qts.push(fresh);
        }
        1 => {
            qts.remove(place);
            qts.push(fresh);
        }
        2 if place > 0 => {
            qts[place] = qts[0];
            qts[0] = fresh;
        }
        _ => qts[place] = fresh,
    }
}

/// Each of the results was left behind by a caller that waits for others.
#[test]
fn results_nobody_asks_for_are_kept() {
    let mut tokens = tokens(600);
    let left = start_many(&mut tokens, 200);
    let mut qts = start_many(&mut tokens, 300);
    for &qt in &left {
        assert!(tokens.complete(qt, |(), result| *result = 1));
    }
    for round in 0..300 {
        assert!(tokens.complete(qts[round], |(), result| *result = 2));
        assert_eq!(take_any(&mut tokens, &qts), Some((round, 2)));
        qts[round] = tokens.start(()).unwrap();
    }
    // One of them is now waited for after all, at a place nobody told us.
    qts[250] = left[100];
    assert_eq!(take_any(&mut tokens, &qts), Some((250, 1)));
    assert!(
        left.iter()
            .filter(|&&qt| tokens.take(qt) == Ok(Some(1)))
            .count()
            == 199
    );
}

/// Operations begin, end and are asked for by chance; each token must bring its own result.
#[test]
fn a_token_is_never_given_twice_while_its_result_waits() {
    let mut tokens = tokens(64);
    let mut rng = crate::rng::Rng::new(7);
    let mut alive: Vec<(QToken, u32)> = Vec::new();
    for number in 0..1_000_000 {
        if alive.len() < 64 && rng.below(2) == 0 {
            let qt = tokens.start(()).unwrap();
            assert!(alive.iter().all(|&(other, _)| other != qt), "{qt:?} twice");
            alive.push((qt, number));
        } else if !alive.is_empty() {
            let place = rng.below(alive.len() as u64) as usize;
            let (qt, number) = alive[place];
            if tokens.complete(qt, |_, result| *result = number) && rng.below(2) == 0 {
                continue; // Whoever started it asks later.
            }
            assert_eq!(tokens.take(qt), Ok(Some(number)));
            alive.swap_remove(place);
        }
    }
}
